// Drive a real browser over the pages. The orders come as JSON on standard input, what was seen goes out as JSON.
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

const FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
const WIDTHS = { 390: 844, 1440: 900 };
// A colour looks the same in every width, and a width in every colour.
const LOOKS = [
  [390, 844, "dark"],
  [1440, 900, "light"],
];

/** Open a window; everything that a browser would complain of is noted in `seen.complaints`. */
async function open(browser, orders, options = {}) {
  const context = await browser.newContext({ baseURL: orders.base, ...options });
  context.on("page", (page) => watch(page, orders));
  return { context, page: await context.newPage() };
}

function watch(page, orders) {
  page.setDefaultTimeout(15000);
  page.on("console", (message) => {
    // A page with a status of its own is no complaint; the tests ask for some.
    const expected = /status of (401|403|404|409|422)/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !expected) orders.complain(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => orders.complain(`${page.url()}: ${error.message}`));
  page.on("dialog", (dialog) => {
    orders.complain(`${page.url()}: a dialog says ${dialog.message()}`);
    dialog.dismiss();
  });
}

/** Do something for each path, in several tabs at a time. */
async function inTabs(context, many, paths, look) {
  const left = [...paths];
  const tab = async () => {
    const page = await context.newPage();
    while (left.length) await look(page, left.shift());
    await page.close();
  };
  await Promise.all(Array.from({ length: many }, tab));
}

/** Say what does not fit a window: the page, a box, an entry of the menu, a column too narrow to read. */
function misfits() {
  const found = [];
  const beyond = document.documentElement.scrollWidth - innerWidth;
  if (beyond > 0) found.push(`${beyond} px beyond the window`);
  for (const link of document.querySelectorAll(".sections a")) {
    const { left, right } = link.getBoundingClientRect();
    if (left < 0 || right > innerWidth) found.push(`${link.textContent} is out of reach`);
  }
  for (const box of document.querySelectorAll(".panel, .card, .tile, .axis-card")) {
    const over = box.scrollWidth - box.clientWidth;
    if (over > 0) found.push(`${over} px beyond a ${box.className}: ${box.textContent.trim().slice(0, 40)}`);
  }
  for (const cell of document.querySelectorAll("td")) {
    const narrow = cell.offsetParent && cell.textContent.trim().length > 40 && cell.clientWidth < 110;
    if (narrow) found.push(`${cell.clientWidth} px for ${cell.textContent.trim().slice(0, 40)}`);
  }
  return found;
}

async function signIn(page, token) {
  await page.goto("/ui/sign-in");
  await page.fill("#token", token);
  await page.click("main button");
  await page.waitForURL("**/ui");
}

const commands = {
  /** Look at every page in both colours and widths: what axe finds, and what does not fit the window. */
  async look(browser, orders) {
    const found = [];
    const { context, page } = await open(browser, orders, { reducedMotion: "reduce" });
    await signIn(page, orders.token);
    await inTabs(context, 2, orders.paths, async (page, path) => {
      await page.goto(path);
      await page.evaluate(() => document.querySelectorAll("main details").forEach((one) => (one.open = true)));
      for (const width of [390, 600, 960, 1200, 1440]) {
        await page.setViewportSize({ width, height: 900 });
        for (const misfit of await page.evaluate(misfits)) found.push(`${path} ${width}: ${misfit}`);
      }
      for (const [width, height, colorScheme] of LOOKS) {
        await page.setViewportSize({ width, height });
        await page.emulateMedia({ colorScheme });
        const where = `${path} ${colorScheme} ${width}`;
        // There are no frames, so that one run in the page itself is all.
        const { violations } = await new AxeBuilder({ page }).setLegacyMode(true).analyze();
        for (const { id, nodes } of violations) found.push(`${where}: axe ${id}: ${nodes[0].html.slice(0, 160)}`);
      }
    });
    await context.close();
    return found;
  },

  /** Make moves by clicking, and read what the page says then. */
  async act(browser, orders) {
    const said = [];
    const { context, page } = await open(browser, orders, { javaScriptEnabled: orders.script });
    await signIn(page, orders.token);
    for (const { path, open: summary, fill, click } of orders.moves) {
      await page.goto(path);
      if (summary) await page.click(`summary:has-text("${summary}")`);
      for (const [field, value] of Object.entries(fill || {})) {
        const kind = await page.locator(field).evaluate((one) => one.tagName);
        await (kind === "SELECT" ? page.selectOption(field, value) : page.fill(field, value));
      }
      await page.click(`main form button:has-text("${click}")`);
      said.push(await page.textContent("p.flash[role=status]:not([data-stale])"));
    }
    await page.click("text=Sign out");
    await page.waitForURL("**/ui/sign-in");
    await page.goto("/ui");
    said.push(new URL(page.url()).pathname);
    await context.close();
    return said;
  },

  /** Look at pages full of what others wrote: nothing of it may run, load or stretch the page. */
  async inert(browser, orders) {
    const found = [];
    const { context, page } = await open(browser, orders);
    const own = new URL(orders.base).origin;
    await signIn(page, orders.token);
    await inTabs(context, 4, orders.paths, async (page, path) => {
      page.on("request", (request) => {
        const { origin, pathname } = new URL(request.url());
        if (origin !== own || !/^\/(ui|tools)/.test(pathname)) found.push(`asked for ${request.url()}`);
      });
      for (const [width, height] of Object.entries(WIDTHS)) {
        await page.setViewportSize({ width: Number(width), height });
        await page.goto(path);
        if (orders.live.includes(path) && width === "390") {
          await page.waitForResponse((answer) => answer.url().includes("part=live"));
        }
        const state = await page.evaluate(() => ({
          pwned: "pwned" in window,
          beyond: document.documentElement.scrollWidth - innerWidth,
          scripts: document.querySelectorAll("script, img, iframe, [onerror], [style]").length,
        }));
        if (state.pwned || state.beyond > 0 || state.scripts !== 1) found.push(`${path} ${width}: ${JSON.stringify(state)}`);
      }
    });
    await context.close();
    return found;
  },

  /** Watch a page stay fresh, grow stale, become fresh again, and end with its session. */
  async live(browser, orders) {
    const { context, page } = await open(browser, { ...orders, complain: () => {} });
    await signIn(page, orders.token);
    await page.goto(orders.path);
    const left = await page.textContent("time[data-counts=down]");
    await page.waitForFunction((before) => document.querySelector("time[data-counts=down]").textContent !== before, left);
    await page.evaluate(() => (window.same = true));
    console.log(JSON.stringify("ready"));
    await page.waitForSelector(orders.appears);
    const steps = [(await page.evaluate(() => window.same)) ? "fresh without a reload" : "reloaded"];
    await page.route("**/*part=live*", (route) => route.abort());
    await page.waitForSelector("[data-stale]:not([hidden])");
    steps.push((await page.locator(".stale").count()) > 0 ? "stale" : "not marked");
    await page.unroute("**/*part=live*");
    await page.waitForSelector("[data-stale][hidden]", { state: "attached" });
    steps.push("fresh again");
    await page.click(`summary:has-text("${orders.summary}")`);
    await page.fill(orders.field, "half a word");
    await page.waitForResponse((answer) => answer.url().includes("part=live"));
    await page.waitForResponse((answer) => answer.url().includes("part=live"));
    steps.push(await page.inputValue(orders.field));
    await context.clearCookies();
    await page.waitForURL("**/ui/sign-in");
    steps.push("signed out");
    await context.close();
    return steps;
  },

  /** Type into the catalogue's search, with and without the script. */
  async search(browser, orders) {
    const counts = [];
    for (const javaScriptEnabled of [true, false]) {
      const { context, page } = await open(browser, orders, { javaScriptEnabled });
      await page.goto("/tools");
      await page.fill("#q", "lease_expired");
      if (!javaScriptEnabled) {
        await page.click("main form button");
        await page.waitForURL("**/tools?q=*");
      }
      counts.push([await page.locator("article:visible").count(), await page.textContent("[data-count]")]);
      await context.close();
    }
    return counts;
  },

  /** Take pictures. */
  async shots(browser, orders) {
    const { context, page } = await open(browser, orders, { colorScheme: orders.colorScheme, viewport: orders.viewport });
    await signIn(page, orders.token);
    for (const [file, path] of Object.entries(orders.pictures)) {
      await page.goto(path);
      await page.screenshot({ path: file });
    }
    await context.close();
    return [];
  },
};

(async () => {
  const orders = JSON.parse(require("fs").readFileSync(0, "utf8"));
  const complaints = [];
  orders.complain = (text) => complaints.push(text);
  const browser = await chromium.launch({ executablePath: orders.chromium, args: FLAGS.split(" ") });
  try {
    const seen = await commands[orders.command](browser, orders);
    console.log(JSON.stringify({ seen, complaints }));
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.error(String(error.stack || error));
  process.exit(1);
});
