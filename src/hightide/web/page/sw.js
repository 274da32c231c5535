// Keeps the page for visits without a network. The model is kept by the engine, in the origin's private file system.
const CACHE = "hightide";

self.addEventListener("install", (event) => {
    event.waitUntil((async () => {
        const manifest = await (await fetch("manifest.json", {cache: "no-cache"})).json();
        const cache = await caches.open(CACHE);
        await cache.addAll(["./", "manifest.json", ...manifest.page]);
        await self.skipWaiting();
    })());
});

self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
    const {request} = event;
    const kept = new URL(request.url).origin === self.location.origin && !/\.bin$/.test(request.url);
    if (request.method !== "GET" || !kept) return;
    event.respondWith((async () => {
        const cache = await caches.open(CACHE);
        const response = await fetch(request).catch(() => Response.error());
        if (response.ok) await cache.put(request, response.clone());
        return response.ok ? response : (await cache.match(request, {ignoreSearch: true})) ?? response;
    })());
});
