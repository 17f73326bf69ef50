// Live numbers, and the keys of the strip. Every page is whole without this script.
"use strict";

(() => {
  const box = document.getElementById("live");
  const state = document.getElementById("live-state");
  const button = document.getElementById("live-button");
  // Milliseconds between two looks, and of a look: an answer that takes long is asked for less often.
  const PAUSE_MS = 1000;
  const PATIENCE_MS = 20000;
  // Between two questions whether there is something to show.
  const AGAIN_MS = 2000;
  let events = null;
  let isPaused = false;
  let isAsking = false;
  let isDue = false;
  // The text of each region as the server last wrote it.
  const seen = new Map();

  function show(name, text) {
    box.dataset.state = name;
    if (state.textContent !== text) state.textContent = text;
  }

  // The page answers, and what it says may be old.
  function showState() {
    if (document.querySelector("[data-old]")) show("lost", "Old numbers");
    else show("on", "Live");
  }

  // A place in a region that is found again when the region has been replaced.
  function keyOf(element) {
    const region = element && element.closest && element.closest("[data-live]");
    if (!region || element === region) return null;
    const selector = element.hasAttribute("href") ? `[href="${CSS.escape(element.getAttribute("href"))}"]` : element.id ? `#${CSS.escape(element.id)}` : null;
    if (!selector) return null;
    const alike = [...region.querySelectorAll(selector)];
    return { id: region.id, selector, place: alike.indexOf(element) };
  }

  function replace(next) {
    for (const region of document.querySelectorAll("[data-live]")) {
      const fresh = next.getElementById(region.id);
      if (!fresh || fresh.outerHTML === seen.get(region.id)) continue;
      seen.set(region.id, fresh.outerHTML);
      const key = keyOf(document.activeElement);
      const own = document.importNode(fresh, true);
      region.replaceWith(own);
      if (key && key.id === own.id) {
        const found = own.querySelectorAll(key.selector)[key.place];
        if (found) found.focus({ preventScroll: true });
      }
    }
    begin();
  }

  async function look() {
    if (isAsking || isPaused || document.hidden) {
      isDue = true;
      return;
    }
    isAsking = true;
    isDue = false;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(PATIENCE_MS), headers: { Accept: "text/html" } });
      if (answer.ok) {
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (!isPaused) {
          replace(next);
          showState();
        }
      } else {
        show("lost", `No newer numbers (${answer.status})`);
      }
    } catch {
      show("lost", "No newer numbers");
    }
    setTimeout(() => {
      isAsking = false;
      if (isDue) look();
    }, Math.max(PAUSE_MS, 4 * (performance.now() - began)));
  }

  async function lookAgain() {
    try {
      if (!document.hidden && (await fetch(location.href, { method: "HEAD", cache: "no-store" })).ok) {
        location.reload();
        return;
      }
    } catch { /* It is asked again. */ }
    setTimeout(lookAgain, AGAIN_MS);
  }

  function listen() {
    events = new EventSource("events");
    events.onopen = () => {
      showState();
      // What changed while nobody listened.
      if (isDue) look();
    };
    events.onerror = () => {
      isDue = true;
      show("lost", events.readyState === EventSource.CLOSED ? "Not live; reload to see newer numbers" : "Connection lost");
    };
    events.addEventListener("changed", look);
  }

  // The strip: one stop of the Tab key, in which arrows go from mark to mark.
  function begin() {
    const strip = document.querySelector("svg.strip");
    if (!strip || strip.dataset.begun) return;
    strip.dataset.begun = "yes";
    const told = document.getElementById("strip-told");
    const marks = [...strip.querySelectorAll(".mark")];
    const focused = marks.indexOf(document.activeElement);
    let at = focused >= 0 ? focused : 0;
    marks.forEach((mark, place) => {
      mark.setAttribute("tabindex", place === at ? "0" : "-1");
      mark.addEventListener("focus", () => {
        marks[at].setAttribute("tabindex", "-1");
        at = place;
        mark.setAttribute("tabindex", "0");
        told.textContent = mark.getAttribute("aria-label");
      });
      mark.addEventListener("pointerenter", () => { told.textContent = mark.getAttribute("aria-label"); });
    });
    if (focused >= 0) told.textContent = marks[at].getAttribute("aria-label");
    strip.addEventListener("keydown", (event) => {
      const place = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: marks.length - 1 }[event.key];
      if (place === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      marks[Math.min(marks.length - 1, Math.max(0, place))].focus();
    });
  }

  for (const region of document.querySelectorAll("[data-live]")) seen.set(region.id, region.outerHTML);
  begin();
  // A page that has nothing to show yet asks until it has.
  if (document.getElementById("again")) setTimeout(lookAgain, AGAIN_MS);
  if (!seen.size) return;
  box.hidden = false;
  show("", "Connecting");
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Go on" : "Pause";
    if (isPaused) {
      events.close();
      show("", "Paused");
    } else {
      listen();
      look();
    }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && isDue) look(); });
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (event) => { if (event.persisted && !isPaused) listen(); });
  listen();
})();
