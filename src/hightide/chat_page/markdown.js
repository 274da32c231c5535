// What a model writes, as HTML that can do nothing: Markdown with coloured code, sanitised.
import {Marked} from "./vendor/marked.esm.js";
import DOMPurify from "./vendor/purify.es.mjs";
import highlight from "./vendor/highlight.min.js";

const marked = new Marked({gfm: true, breaks: true});
const ALLOWED = {
    USE_PROFILES: {html: true},
    FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "option", "dialog", "img", "picture", "video",
        "audio", "source", "track", "svg", "math", "iframe", "object", "embed", "link", "meta", "base"],
    FORBID_ATTR: ["style", "id", "name", "class", "srcset", "src", "action", "formaction", "ping", "background"],
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
};

// Fills an element. Code blocks get a button that copies them.
export function show(element, text) {
    element.innerHTML = DOMPurify.sanitize(marked.parse(text), ALLOWED);
    for (const link of element.querySelectorAll("a[href]")) {
        link.target = "_blank";
        link.rel = "noopener noreferrer nofollow";
    }
    const languages = codeLanguages(text);
    element.querySelectorAll("pre > code").forEach((code, n) => {
        const language = highlight.getLanguage(languages[n] ?? "") ? languages[n] : "";
        if (language) {
            code.innerHTML = highlight.highlight(code.textContent, {language}).value; // escapes what it is given
        }
        code.parentElement.before(codeHeader(languages[n] ?? "", code));
    });
}

function codeLanguages(text) {
    const languages = [];
    marked.walkTokens(marked.lexer(text), (token) => {
        if (token.type === "code") languages.push((token.lang ?? "").split(/\s/)[0].toLowerCase());
    });
    return languages;
}

function codeHeader(language, code) {
    const header = document.createElement("div");
    header.className = "code-header";
    const name = document.createElement("span");
    name.textContent = language;
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.addEventListener("click", async () => {
        copy.textContent = await navigator.clipboard?.writeText(code.textContent).then(() => "Copied", () => "Failed") ?? "Failed";
        setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
    header.append(name, copy);
    return header;
}
