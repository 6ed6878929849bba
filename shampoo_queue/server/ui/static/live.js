// Keep the page fresh while somebody looks at it. Without this script every page is complete, only as old as its load.

const EVERY = 2000; // milliseconds between two polls of a panel

const panels = [...document.querySelectorAll("[data-live]")];
let tag = null;

/** Ask for the panels of this very page again, and put those in place that differ. */
async function refresh() {
  const address = new URL(location.href);
  address.searchParams.set("part", "live");
  let fresh = true;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch(address, { headers, redirect: "error", signal: AbortSignal.timeout(5 * EVERY) });
    if (answer.status === 200) {
      // A panel that somebody is busy with is asked for again the next time.
      tag = place(await answer.text()) ? answer.headers.get("ETag") : null;
    } else if (answer.status === 401) {
      location.reload(); // the session is over: the server leads to the sign-in page
    } else {
      fresh = answer.status === 304;
    }
  } catch {
    fresh = false;
  }
  for (const panel of panels) panel.classList.toggle("stale", !fresh);
  document.querySelector("[data-stale]").hidden = fresh;
}

/** Put new panels in place; tell whether none had to wait. */
function place(html) {
  const box = document.createElement("template");
  box.innerHTML = html;
  let all = true;
  for (const part of box.content.children) {
    const panel = panels.find((one) => one.dataset.live === part.dataset.part);
    if (!panel || panel.last === part.innerHTML) continue;
    if (isBusy(panel)) {
      all = false;
    } else {
      panel.last = part.innerHTML;
      panel.innerHTML = part.innerHTML;
    }
  }
  tick();
  return all;
}

/** Tell whether somebody is in the middle of a panel: in a field or link, an open disclosure, a selection. */
function isBusy(panel) {
  const chosen = getSelection();
  const selecting = !chosen.isCollapsed && panel.contains(chosen.anchorNode);
  return selecting || panel.contains(document.activeElement) || panel.querySelector("details[open]") !== null;
}

// How far this computer's clock is from the server's.
const clock = Number(document.body.dataset.now || Date.now()) - Date.now();

function length(milliseconds) {
  const seconds = Math.round(milliseconds / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

/** Count leases down and ages up. */
function tick() {
  const now = Date.now() + clock;
  for (const time of document.querySelectorAll("time[data-counts]")) {
    const rest = Date.parse(time.dateTime) - now;
    if (time.dataset.counts === "down") time.textContent = rest > 0 ? `${length(rest)} left` : "lapsed";
    else time.textContent = length(Math.max(0, -rest));
  }
}

let running = false;
if (panels.length) {
  setInterval(async () => {
    if (document.hidden || running) return;
    running = true;
    await refresh();
    running = false;
  }, EVERY);
}
if (document.querySelector("[data-live], time[data-counts]")) setInterval(tick, 1000);

// A flash line belongs to one answer: reloading the page should not say it again.
const here = new URL(location.href);
if (here.searchParams.has("flash")) {
  here.searchParams.delete("flash");
  history.replaceState(null, "", here);
}

// The catalogue filters as somebody types; without the script its form does the same.
const search = document.querySelector("input[data-filters]");
search?.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const item of document.querySelectorAll("[data-words]")) {
    const fits = words.every((word) => item.dataset.words.includes(word));
    item.hidden = !fits;
    if (fits && item.matches("article")) shown += 1;
  }
  document.querySelector("[data-count]").textContent = `${shown} ${shown === 1 ? "tool" : "tools"}`;
});
