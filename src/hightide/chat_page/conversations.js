// Conversations and settings, kept in the browser.

const CONVERSATIONS = "hightide.conversations";
const SETTINGS = "hightide.settings";

function read(name, otherwise) {
    try {
        return JSON.parse(localStorage.getItem(name)) ?? otherwise;
    } catch {
        return otherwise; // something else wrote it, or the browser keeps nothing
    }
}

export class Conversations {
    constructor() {
        const kept = read(CONVERSATIONS, []);
        this.all = Array.isArray(kept) ? kept.filter((one) => Array.isArray(one?.messages)) : [];
        this.current = this.all[0] ?? this.begin();
    }

    begin() {
        const empty = this.all.find((one) => !one.messages.length);
        this.current = empty ?? {id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), messages: []};
        if (!empty) this.all.unshift(this.current);
        return this.current;
    }

    open(id) {
        this.current = this.all.find((one) => one.id === id) ?? this.current;
    }

    remove(id) {
        this.all = this.all.filter((one) => one.id !== id);
        if (this.current.id === id) this.current = this.all[0] ?? this.begin();
        this.keep();
    }

    removeAll() {
        this.all = [];
        this.begin();
        this.keep();
    }

    // False if the browser has no room.
    keep() {
        try {
            localStorage.setItem(CONVERSATIONS, JSON.stringify(this.all));
            return true;
        } catch {
            return false;
        }
    }
}

export function title(conversation) {
    return conversation.messages.find((message) => message.role === "user")?.content.slice(0, 60) || "New conversation";
}

export function readSettings() {
    return read(SETTINGS, {});
}

export function keepSettings(settings) {
    try {
        localStorage.setItem(SETTINGS, JSON.stringify(settings));
    } catch { /* they hold until the page is closed */ }
}
