// The server's API, as the page needs it.

export const ENGINE = "server";

let key = "";
export function useKey(value) { key = value; }

function headers(more = {}) {
    return key ? {...more, Authorization: `Bearer ${key}`} : more;
}

async function refused(response) {
    let text = `${response.status} ${response.statusText}`;
    try {
        text = (await response.json()).error.message;
    } catch { /* not JSON: the status says enough */ }
    return new Error(text);
}

export async function models() {
    const response = await fetch("v1/models", {headers: headers()});
    if (!response.ok) throw await refused(response);
    return (await response.json()).data.map((model) => model.id);
}

// The deltas of an answer as they arrive; the last value has `usage`.
export async function* answer(body, signal) {
    const response = await fetch("v1/chat/completions", {
        method: "POST",
        headers: headers({"Content-Type": "application/json"}),
        body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
        signal,
    });
    if (!response.ok) throw await refused(response);
    for await (const data of events(response.body)) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message);
        const choice = chunk.choices[0];
        yield {...choice?.delta, finish: choice?.finish_reason, usage: chunk.usage};
    }
    throw new Error("the connection ended before the answer did");
}

async function* events(stream) {
    const decoder = new TextDecoder();
    const reader = stream.getReader();
    let rest = "";
    try {
        for (;;) {
            const {done, value} = await reader.read();
            if (done) return;
            const lines = (rest + decoder.decode(value, {stream: true})).split("\n");
            rest = lines.pop();
            for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6).trimEnd();
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

// Sums of the server's metrics by name, without the prefix.
export async function metrics() {
    const response = await fetch("metrics", {headers: headers()});
    if (!response.ok) throw await refused(response);
    const sums = {};
    for (const line of (await response.text()).split("\n")) {
        const found = line.match(/^hightide:([a-z_]+)(?:\{[^}]*\})? (\S+)/);
        if (found) sums[found[1]] = (sums[found[1]] ?? 0) + Number(found[2]);
    }
    return sums;
}
