// The model in this very page, as the page needs it: what client.js of a served page asks a server for.
import {load} from "../hightide.js";

export const ENGINE = "browser";
export function useKey() { /* nobody is asked for one */ }

const STAGES = {checks: "Testing the kernels", kernels: "Compiling", weights: "Loading the model"};
let loading = null;
let context = 1;
const sums = {generation_tokens_total: 0, num_requests_running: 0, num_requests_waiting: 0, kv_cache_usage_perc: 0};

function told({stage, done, total, seconds}) {
    const what = STAGES[stage] ?? stage;
    if (stage !== "weights") return `${what}: ${done} of ${total}`;
    const left = seconds > 2 ? `, about ${Math.ceil(seconds)} s left` : "";
    return `${what}: ${Math.round(done / 1e6)} of ${Math.round(total / 1e6)} MB${left}`;
}

function model(say) {
    loading ??= load(new URL("..", import.meta.url), {onProgress: (progress) => say?.(told(progress))});
    return loading;
}

export async function models(say) {
    try {
        const {about} = await model(say);
        context = about.context;
        const left = about.leftOut.length ? ` Left out: ${about.leftOut.join("; ")}.` : "";
        const notes = about.notes.map((note) => ` ${note[0].toUpperCase()}${note.slice(1)}.`).join("");
        say(`Ready on ${about.adapter}.${left}${notes} Nothing that you write leaves this page.`);
        return [about.name];
    } catch (error) {
        loading = null;
        throw error;
    }
}

// The deltas of an answer as they are made; the last value has `usage`.
export async function* answer(body, signal) {
    const engine = await model();
    const {messages, temperature = 0.7, top_p: topP, top_k: topK, min_p: minP, max_tokens: maxTokens, seed} = body;
    const options = {temperature, topP, topK, minP, maxTokens, seed};
    for (const name of Object.keys(options)) if (options[name] === undefined) delete options[name];
    sums.num_requests_running = 1;
    try {
        for await (const piece of engine.generate(messages, {...options, signal})) {
            if (piece.token >= 0) sums.generation_tokens_total += 1;
            yield {content: piece.text};
        }
        signal?.throwIfAborted();
        const {finishReason, stats} = engine.last;
        sums.kv_cache_usage_perc = (stats.promptTokens + stats.newTokens) / context;
        const cut = finishReason === "length" || finishReason === "context";
        yield {finish: cut ? "length" : "stop", usage: {completion_tokens: stats.newTokens}};
    } finally {
        sums.num_requests_running = 0;
    }
}

export async function metrics() {
    return {...sums};
}

navigator.serviceWorker?.register("sw.js").catch(() => { /* then it works while the network does */ });
