// llama.cpp through node-llama-cpp, on Vulkan or on the CPU. Usage: node llama_cpp.mjs MODEL vulkan|cpu
// Run in the folder whose node_modules has the package. Commands and answers are JSON lines; see wire.py.
import {createServer} from "node:http";
import {createRequire} from "node:module";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";
import path from "node:path";

const [modelPath, backend] = process.argv.slice(2);
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const {log, warn, info} = {log: console.error, warn: console.error, info: console.error};
Object.assign(console, {log, warn, info}); // stdout belongs to the answers

function clock() {
    const {user, system} = process.cpuUsage(); // of all threads, so of a software adapter's too
    return [(user + system) / 1e3, performance.now()];
}

async function timed(work) {
    const [cpu, wall] = clock();
    const value = await work();
    const [cpuAfter, wallAfter] = clock();
    return [{cpu_ms: cpuAfter - cpu, wall_ms: wallAfter - wall}, value];
}

async function open() {
    const here = path.join(process.cwd(), "node_modules", "node-llama-cpp");
    const {getLlama, LlamaLogLevel} = await import(pathToFileURL(path.join(here, "dist", "index.js")));
    const llama = await getLlama({
        gpu: backend === "vulkan" ? "vulkan" : false,
        build: "never",
        logLevel: LlamaLogLevel.error,
        progressLogs: "stderr",
        maxThreads: backend === "vulkan" ? undefined : 1,
        vramPadding: 0,
    });
    const devices = backend === "vulkan" ? await llama.getGpuDeviceNames() : [];
    const model = await llama.loadModel({
        modelPath,
        gpuLayers: backend === "vulkan" ? "max" : 0,
        ignoreMemorySafetyChecks: true,
        useMmap: true,
    });
    if (backend === "vulkan" && (llama.gpu !== "vulkan" || devices.length === 0 || model.gpuLayers === 0))
        throw new Error(`it would run on the CPU (backend ${llama.gpu}, devices ${JSON.stringify(devices)})`);
    const context = await model.createContext({
        contextSize: 1280,
        batchSize: 1024,
        threads: backend === "vulkan" ? undefined : 1,
        ignoreMemorySafetyChecks: true,
    });
    const {version} = createRequire(import.meta.url)(path.join(here, "package.json"));
    return {
        model,
        sequence: context.getSequence(),
        about: {
            device: devices.join(", ") || "CPU, 1 thread",
            version: `node-llama-cpp ${version}, llama.cpp ${llama.llamaCppRelease.release}`,
            layers_on_device: model.gpuLayers,
        },
    };
}

async function main() {
    const [load, {model, sequence, about}] = await timed(open);
    say({ready: about, load});
    let stream = null; // goes on from the last prefill
    const prefill = async (tokens) => {
        if (stream) await stream.return();
        await sequence.clearHistory();
        stream = sequence.evaluate(tokens, {temperature: 0, yieldEogToken: true});
        const [sample, {value}] = await timed(() => stream.next());
        return {samples: [sample], ids: [value]};
    };
    const decode = async (count) => {
        const samples = [], ids = [];
        for (let n = 0; n < count; n++) {
            const [sample, {value}] = await timed(() => stream.next());
            samples.push(sample);
            ids.push(value);
        }
        return {samples, ids};
    };
    const parallel = async (prompts, count) => {
        const many = await model.createContext({
            sequences: prompts.length,
            contextSize: Math.max(...prompts.map((tokens) => tokens.length)) + count + 8,
            batchSize: 512,
            ignoreMemorySafetyChecks: true,
        });
        const sequences = prompts.map(() => many.getSequence());
        const answer = async (tokens, n) => {
            const ids = [];
            for await (const id of sequences[n].evaluate(tokens, {temperature: 0, yieldEogToken: true})) {
                ids.push(id);
                if (ids.length === count) break;
            }
            return ids;
        };
        const [sample, ids] = await timed(() => Promise.all(prompts.map(answer)));
        await many.dispose();
        return {samples: [sample], ids: ids.flat()};
    };
    // POST {prompt: ids, max_tokens}: an event per token. As many answers at once as there are sequences; others wait.
    const serve = async (count, contextSize) => {
        const many = await model.createContext({
            sequences: count,
            contextSize,
            batchSize: 512,
            ignoreMemorySafetyChecks: true,
        });
        const free = Array.from({length: count}, () => many.getSequence());
        const waiting = [];
        const answer = async (request, response) => {
            const parts = [];
            for await (const part of request) parts.push(part);
            const {prompt, max_tokens: tokens} = JSON.parse(Buffer.concat(parts).toString());
            const one = free.pop() ?? (await new Promise((resolve) => waiting.push(resolve)));
            response.writeHead(200, {"Content-Type": "text/event-stream"});
            let made = 0;
            for await (const id of one.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
                response.write(`data: ${JSON.stringify({choices: [{index: 0, text: model.detokenize([id])}]})}\n\n`);
                if (++made === tokens) break;
            }
            await one.clearHistory();
            if (waiting.length) waiting.shift()(one);
            else free.push(one);
            response.end("data: [DONE]\n\n");
        };
        const server = createServer((request, response) => answer(request, response).catch(() => response.destroy()));
        await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
        return {port: server.address().port};
    };
    for await (const line of createInterface({input: process.stdin})) {
        const order = JSON.parse(line);
        if (order.do === "prefill") say(await prefill(order.tokens));
        else if (order.do === "parallel") say(await parallel(order.prompts, order.count));
        else if (order.do === "serve") say(await serve(order.sequences, order.context));
        else if (order.do === "decode") {
            if (order.tokens) await prefill(order.tokens);
            say(await decode(order.count));
        } else if (order.do === "quit") break;
        else say({error: `llama_cpp does not do ${order.do}`});
    }
    process.exit(0);
}

main().catch((error) => {
    say({error: String(error.message ?? error).split("\n")[0]});
    process.exit(1);
});
