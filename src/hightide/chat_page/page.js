// The page: conversations at the left, messages in the middle, what the engine is doing below the conversations. The
// engine is behind client.js: a server, or this very page.
import {ENGINE, answer, metrics, models, useKey} from "./client.js";
import {Conversations, keepSettings, readSettings, title} from "./conversations.js";
import {show} from "./markdown.js";
import {Plot} from "./plots.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
const $ = (id) => document.getElementById(id);
const conversations = new Conversations();
let settings = readSettings();
let running = null; // AbortController of the answer that is being made

// ---- small helpers

function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
}

function say(text, wrong = false) {
    $("status").textContent = text;
    $("status").classList.toggle("wrong", wrong);
}

function keep() {
    if (!conversations.keep()) say("The browser has no room to keep this conversation.", true);
}

// ---- the list of conversations

function showConversations() {
    $("conversations").replaceChildren(...conversations.all.map((one) => {
        const open = make("button", {type: "button", className: "open", textContent: title(one), title: title(one)});
        if (one === conversations.current) open.setAttribute("aria-current", "true");
        open.addEventListener("click", () => {
            stop();
            conversations.open(one.id);
            showAll();
            closeMenu();
        });
        const remove = make("button", {type: "button", className: "remove", textContent: "×"});
        remove.setAttribute("aria-label", `Delete ${title(one)}`);
        remove.addEventListener("click", () => {
            if (one === conversations.current) stop();
            conversations.remove(one.id);
            showAll();
        });
        return make("li", {}, open, remove);
    }));
}

function begin() {
    stop();
    conversations.begin();
    showAll();
    closeMenu();
    $("question").focus();
}

// ---- messages

function showMessages() {
    $("messages").replaceChildren(...conversations.current.messages.map((message, at) => showMessage(message, at)));
    scrollDown();
}

function showMessage(message, at) {
    const mine = message.role === "user";
    const body = make("div", {className: "body"});
    const article = make("article", {className: message.role}, make("h3", {textContent: mine ? "You" : "Model"}), body);
    article.setAttribute("aria-label", mine ? "Your message" : "Answer");
    fill(body, message);
    const buttons = make("p", {className: "buttons"});
    if (mine) buttons.append(button("Edit", () => edit(article, message, at)));
    else buttons.append(button("Retry", () => retry(at)));
    buttons.append(button("Copy", () => navigator.clipboard?.writeText(message.content)));
    if (message.note) buttons.append(make("span", {className: "note", textContent: message.note}));
    article.append(buttons);
    return article;
}

function fill(body, message) {
    if (message.role === "user") {
        body.textContent = message.content;
        return;
    }
    const text = make("div", {className: "text"});
    show(text, message.content);
    if (message.reasoning) {
        const open = body.querySelector("details")?.open ?? !message.content;
        const thought = make("div", {className: "text"});
        show(thought, message.reasoning);
        body.replaceChildren(make("details", {open}, make("summary", {textContent: "Reasoning"}), thought), text);
    } else {
        body.replaceChildren(text);
    }
}

function button(text, action) {
    const made = make("button", {type: "button", textContent: text});
    made.addEventListener("click", action);
    return made;
}

function edit(article, message, at) {
    stop();
    const box = make("textarea", {value: message.content, rows: Math.min(12, message.content.split("\n").length + 1)});
    box.setAttribute("aria-label", "Edit your message");
    const done = () => ask(box.value, at);
    box.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            done();
        } else if (event.key === "Escape") showMessages();
    });
    article.querySelector(".body").replaceChildren(box);
    article.querySelector(".buttons").replaceChildren(button("Send", done), button("Cancel", showMessages));
    box.focus();
}

function retry(at) {
    const before = conversations.current.messages[at - 1];
    if (before?.role === "user") ask(before.content, at - 1);
}

function scrollDown() {
    const box = $("messages");
    box.scrollTop = box.scrollHeight;
}

// ---- asking

// Ask; what stands from message `at` on is replaced.
async function ask(text, at = conversations.current.messages.length) {
    text = text.trim();
    if (!text) return;
    stop();
    const conversation = conversations.current;
    conversation.messages.splice(at, Infinity, {role: "user", content: text});
    const message = {role: "assistant", content: ""};
    const sent = [...conversation.messages];
    conversation.messages.push(message);
    conversations.all = [conversation, ...conversations.all.filter((one) => one !== conversation)];
    showAll();
    const control = running = new AbortController();
    busy(true);
    await receive(conversation, message, sent, control);
    keep();
    if (running === control) {
        running = null;
        busy(false);
    }
    if (conversations.current === conversation) showAll();
}

async function receive(conversation, message, sent, control) {
    const system = settings.system ? [{role: "system", content: settings.system}] : [];
    const body = {model: $("model").value, messages: [...system, ...sent.map(({role, content}) => ({role, content}))]};
    for (const name of NUMBERS) if (settings[name] !== undefined) body[name] = settings[name];
    const paint = painter(conversation, message);
    let tokens = 0, first = 0, told = 0;
    say("Reading the prompt …");
    try {
        for await (const delta of answer(body, control.signal)) {
            if (delta.content || delta.reasoning_content) {
                first ||= told ||= performance.now();
                tokens += 1;
                message.content += delta.content ?? "";
                if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
                paint();
                const now = performance.now();
                if (now - told > 500) {
                    say(`${((tokens - 1) / (now - first) * 1000).toFixed(1)} tokens/s`);
                    told = now;
                }
            }
            if (delta.finish === "length") message.note = "cut: the answer has as many tokens as it may have";
            if (delta.usage) {
                const seconds = (performance.now() - first) / 1000;
                const rate = tokens > 1 ? `, ${((delta.usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
                say(`Answer finished: ${delta.usage.completion_tokens} tokens${rate}.`);
            }
        }
    } catch (error) {
        const stopped = control.signal.aborted;
        message.note = stopped ? "stopped" : `failed: ${error.message}`;
        say(stopped ? "Stopped." : `The ${ENGINE} did not answer: ${error.message}`, !stopped);
    }
}

// Shows a growing answer, and stays at the bottom if the reader is there. Long ones take time to show: then more seldom,
// so that the page has three quarters of the time for its reader.
function painter(conversation, message) {
    let asked = false, pause = 0;
    const paint = () => {
        asked = false;
        if (conversations.current !== conversation) return;
        const start = performance.now();
        const box = $("messages");
        const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
        fill(box.lastElementChild.querySelector(".body"), message);
        if (follows) scrollDown();
        pause = Math.min(1000, 4 * (performance.now() - start));
    };
    return () => {
        if (asked) return;
        asked = true;
        setTimeout(() => requestAnimationFrame(paint), pause);
    };
}

function stop() {
    running?.abort();
    running = null;
    busy(false);
}

function busy(is) {
    $("send").hidden = is;
    $("stop").hidden = !is;
    $("messages").setAttribute("aria-busy", String(is));
}

// ---- settings

function fillSettings() {
    const fields = $("settings").querySelector("form").elements;
    for (const name of ["system", "key", ...NUMBERS]) fields[name].value = settings[name] ?? "";
}

function takeSettings() {
    const fields = $("settings").querySelector("form").elements;
    settings = {};
    for (const name of ["system", "key"]) if (fields[name].value.trim()) settings[name] = fields[name].value.trim();
    for (const name of NUMBERS) if (fields[name].value !== "") settings[name] = Number(fields[name].value);
    keepSettings(settings);
    useKey(settings.key ?? "");
    showModels();
}

async function showModels() {
    try {
        const [chosen, names] = [$("model").value, await models(say)];
        $("model").replaceChildren(...names.map((name) => make("option", {value: name, textContent: name})));
        if (names.includes(chosen)) $("model").value = chosen;
        if ($("status").classList.contains("wrong")) say("");
    } catch (error) {
        say(`The ${ENGINE} did not answer: ${error.message}`, true);
    }
}

// ---- what the engine is doing

const plots = {rate: new Plot($("rate-plot")), queue: new Plot($("queue-plot")), cache: new Plot($("cache-plot"), 1)};
let before = null;

async function watch() {
    if (!document.hidden) {
        try {
            const [now, sums] = [performance.now(), await metrics()];
            const made = sums.generation_tokens_total ?? 0;
            const rate = before ? Math.max(0, made - before.made) / ((now - before.now) / 1000) : 0;
            before = {now, made};
            const [runs, waits] = [sums.num_requests_running ?? 0, sums.num_requests_waiting ?? 0];
            const cache = sums.kv_cache_usage_perc ?? 0;
            $("rate").textContent = rate.toFixed(1);
            $("queue").textContent = `${runs}, ${waits}`;
            $("cache").textContent = `${Math.round(cache * 100)} %`;
            plots.rate.add(rate);
            plots.queue.add(runs, waits);
            plots.cache.add(cache);
        } catch {
            before = null;
        }
    }
    setTimeout(watch, 1000);
}

// ---- the page itself

function showAll() {
    showConversations();
    showMessages();
}

function closeMenu() {
    document.body.classList.remove("menu");
    $("menu").setAttribute("aria-expanded", "false");
}

function grow() {
    const box = $("question");
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, 240)}px`;
}

$("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("question").value;
    $("question").value = "";
    grow();
    ask(text);
});
$("question").addEventListener("input", grow);
$("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("ask").requestSubmit();
});
$("new").addEventListener("click", begin);
$("stop").addEventListener("click", stop);
$("menu").addEventListener("click", () => {
    const open = document.body.classList.toggle("menu");
    $("menu").setAttribute("aria-expanded", String(open));
});
$("settings-open").addEventListener("click", () => {
    fillSettings();
    $("settings").showModal();
});
$("settings").addEventListener("close", takeSettings);
$("forget").addEventListener("click", () => {
    if (!confirm("Delete all conversations?")) return;
    stop();
    conversations.removeAll();
    showAll();
});
document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !$("settings").open) stop();
    if (event.altKey && event.code === "KeyN") {
        event.preventDefault();
        begin();
    }
});

document.body.dataset.engine = ENGINE;
useKey(settings.key ?? "");
showAll();
showModels();
watch();
