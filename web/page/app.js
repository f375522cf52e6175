// app.js - the dashboard: what a key may see of Cloche, and do.
import { ApiError, call, config, fill, follow, key, upload } from "./api.js";
import { audit, happened, mayRead } from "./audit.js";
import { mayManage, tenant, tenants } from "./tenants.js";
import { shell as shellIn } from "./shell.js";
import { between, bytes, cell, chart, el, outcome, seconds, since, table, until, word } from "./dom.js";

const EVERY_MS = 2000; // how often what is shown is asked for, while the page is seen
const USAGE_EVERY = 3; // of those, for what asks guests
const USAGE_MAX = 32; // guests asked for one list
const OUTPUT_MAX = 256 * 1024; // characters of a command's output on the page
const UPLOAD_MAX = 5 * 2 ** 20, DOWNLOAD_MAX = 64 * 2 ** 20; // bytes of a file: the gateway's for one request; a tab's memory

const main = document.getElementById("main");
const notice = document.getElementById("notice");

function say(text, kind = "") {
  notice.textContent = text;
  notice.className = kind;
  notice.hidden = !text;
}

// Of what a click began: an error is told, and the list shows what became of it.
const doing = (what) => async (event) => {
  event?.preventDefault();
  say("");
  try {
    await what(event);
  } catch (error) {
    fail(error);
  }
  view?.refresh();
};

function fail(error) {
  if (error instanceof ApiError && error.code === "unauthenticated") signIn(error.message);
  else if (error.name !== "AbortError") say(error.message, "bad");
}

const button = (text, what, kind = "") => el(`button${kind}`, { type: "button", onclick: doing(what) }, text);
const short = (id) => `${id.slice(0, 8)}…${id.slice(-6)}`;
const stateOf = (unit) => word(unit.state, "UNIT_STATE_");
const badge = (text) => {
  const node = el(`span.badge.${text.replaceAll(" ", "-") || "none"}`, {}, text);
  node.dataset.state = text;
  return node;
};

// --- output of a command ------------------------------------------------------------------------

function printout() {
  const node = el("pre.output", { tabindex: 0 });
  const decoders = {};
  let shown = 0;
  return {
    node,
    // Of either stream, in the order in which it came.
    add({ stream, data }) {
      const raw = Uint8Array.from(atob(data ?? ""), (c) => c.charCodeAt(0));
      decoders[stream] ??= new TextDecoder();
      // eslint-disable-next-line no-control-regex
      const text = decoders[stream].decode(raw, { stream: true }).replace(/\x1b\[[0-9;?]*[a-zA-Z]/g, "");
      node.append(el(stream === "STREAM_STDERR" ? "span.stderr" : "span", {}, text));
      for (shown += text.length; shown > OUTPUT_MAX && node.childElementCount > 1;) {
        shown -= node.firstChild.textContent.length;
        node.firstChild.remove();
      }
      node.scrollTop = node.scrollHeight;
    },
    end(text) {
      node.append(el("span.end", {}, `${text}\n`));
      node.scrollTop = node.scrollHeight;
    },
  };
}

// --- views --------------------------------------------------------------------------------------
//
// A view is {node, refresh(tick), leave?}; one is shown at a time, by the address's hash.

async function usageOf(ids, known) {
  await Promise.all(ids.slice(0, USAGE_MAX).map(async (id) => {
    try {
      const { samples = [] } = await call("SandboxService/Usage", { unitId: id });
      known.set(id, samples.at(-1));
    } catch (error) {
      if (error.code === "unauthenticated") throw error;
      known.delete(id); // it has just ended, or its worker is older than this
    }
  }));
}

const cpu = (sample) => (sample ? `${Math.round((Number(sample.cpuNs ?? 0) / Number(sample.spanNs || 1)) * 100)} %` : "");
const memory = (sample) => (sample ? `${bytes(sample.memoryUsedBytes)} of ${bytes(sample.memoryTotalBytes)}` : "");

function sandboxActions(box) {
  const id = box.id, state = stateOf(box);
  const kill = button("End", () => confirm(`End ${id}? What it holds is gone.`) && call("SandboxService/Kill", { sandboxId: id }), ".danger");
  const pause = button("Pause", () => call("SandboxService/Pause", { sandboxId: id }));
  const resume = button("Resume", () => call("SandboxService/Resume", { sandboxId: id }));
  if (state === "running") return cell(state, pause, kill);
  return state === "paused" ? cell(state, resume, kill) : cell(state);
}

const link = (kind, id) => cell(id, el("a", { href: `#/${kind}/${id}`, title: id }, short(id)));

function newSandbox() {
  const template = el("select", { name: "template", "aria-label": "template" });
  const ttl = el("select", { name: "ttl", "aria-label": "idle life" },
    ...[[5, "5 min"], [15, "15 min"], [60, "1 h"], [1440, "24 h"]].map(([m, text]) => el("option", { value: m }, text)));
  call("TemplateService/List").then(({ templates = [] }) =>
    template.replaceChildren(...templates.map((t) => el("option", { value: t.name }, t.name)))).catch(fail);
  return el("form.inline", {
    onsubmit: doing(async () => {
      const { sandbox } = await call("SandboxService/Create", { template: template.value, ttlNs: String(Number(ttl.value) * 60e9) });
      location.hash = `#/sandbox/${sandbox.id}`;
    }),
  }, template, ttl, el("button.primary", { type: "submit" }, "New sandbox"));
}

function sandboxes() {
  const usage = new Map();
  const list = table("Sandboxes", [
    { title: "Sandbox", cell: (b) => link("sandbox", b.id) },
    { title: "State", cell: (b) => badge(stateOf(b)) },
    { title: "Template", cell: (b) => b.template ?? "" },
    { title: "Guest", cell: (b) => `${b.driver ?? ""} · ${word(b.guestSeparation, "GUEST_SEPARATION_")}` },
    { title: "CPU", kind: "number", cell: (b) => cpu(usage.get(b.id)) },
    { title: "Memory", kind: "number", cell: (b) => memory(usage.get(b.id)) },
    { title: "Age", kind: "number", cell: (b) => since(b.created) },
    { title: "Ends in", kind: "number", cell: (b) => until(b.expires) },
    { title: "", cell: sandboxActions },
  ], "No sandbox runs.");
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Sandboxes"), newSandbox()), list.node),
    async refresh(tick = 0) {
      const boxes = await fill(list, "SandboxService/List", "sandboxes");
      if (tick % USAGE_EVERY) return;
      await usageOf(boxes.filter((b) => stateOf(b) === "running").map((b) => b.id), usage);
      list.again();
    },
  };
}

function jobs() {
  const list = table("Jobs", [
    { title: "Job", cell: (j) => link("job", j.id) },
    { title: "State", cell: (j) => badge(stateOf(j)) },
    { title: "Result", cell: (j) => outcome(j.result) },
    { title: "Template", cell: (j) => j.spec?.template || j.spec?.snapshot || "" },
    { title: "Command", kind: "command", cell: (j) => (j.spec?.command?.argv ?? []).join(" ") },
    { title: "Took", kind: "number", cell: (j) => between(j.started, j.ended) || since(j.started) },
    { title: "Age", kind: "number", cell: (j) => since(j.created) },
    {
      title: "",
      cell: (j) => (stateOf(j) === "ended" ? cell("ended")
        : cell("live", button("Cancel", () => call("JobService/Cancel", { jobId: j.id }), ".danger"))),
    },
  ], "No job was run yet.");
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Jobs")), list.node),
    refresh: () => fill(list, "JobService/List", "jobs"),
  };
}

function snapshots() {
  const list = table("Snapshots", [
    { title: "Name", cell: (s) => s.name || short(s.id) },
    { title: "Template", cell: (s) => s.template ?? "" },
    { title: "Size", kind: "number", cell: (s) => bytes(s.imageBytes) },
    { title: "Age", kind: "number", cell: (s) => since(s.created) },
    { title: "Ends in", kind: "number", cell: (s) => until(s.expires) },
    {
      title: "",
      cell: (s) => cell("", button("Delete", () => confirm(`Delete the snapshot ${s.name || s.id}?`) &&
        call("SnapshotService/Delete", { snapshot: s.id }), ".danger")),
    },
  ], "No snapshot is kept.");
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Snapshots")), list.node),
    refresh: () => fill(list, "SnapshotService/List", "snapshots"),
  };
}

function workers() {
  const share = (used, all) => `${used ?? 0} of ${all ?? 0}`;
  const list = table("Workers", [
    { title: "Worker", cell: (w) => w.hostname || w.id },
    { title: "Takes work", cell: (w) => badge(w.draining ? "draining" : w.closed ? "closed" : "open") },
    { title: "Driver", cell: (w) => w.driver ?? "" },
    { title: "VMs", kind: "number", cell: (w) => share(w.usedSlots, w.slots) },
    { title: "vCPUs", kind: "number", cell: (w) => share(Number(w.usedVcpuMilli ?? 0) / 1000, Number(w.capacityVcpuMilli ?? 0) / 1000) },
    { title: "Memory", kind: "number", cell: (w) => `${bytes(Number(w.usedMemoryMib ?? 0) * 2 ** 20)} of ${bytes(Number(w.capacityMemoryMib ?? 0) * 2 ** 20)}` },
    { title: "Sandboxes", kind: "number", cell: (w) => w.sandboxes ?? 0 },
    { title: "Jobs", kind: "number", cell: (w) => w.jobs ?? 0 },
    { title: "Build", cell: (w) => w.build ?? "" },
    { title: "", cell: (w) => w.closed || w.drainTrouble || "" },
  ], "No worker has a session.");
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Workers")), list.node),
    refresh: () => fill(list, "FleetService/ListWorkers", "workers"),
  };
}

// --- one of them --------------------------------------------------------------------------------

const facts = (pairs) => el("dl", {}, ...pairs.flatMap(([name, value]) => (value ? [el("dt", {}, name), el("dd", {}, value)] : [])));

function follower(method, message) {
  const screen = printout();
  const stop = new AbortController();
  const done = follow(method, message, (event) => {
    if (event.output) screen.add(event.output);
    if (event.ended) screen.end(outcome(event.ended.result ?? event.ended));
  }, stop.signal).catch((error) => {
    if (error.name !== "AbortError") screen.end(error.message);
  });
  return { node: screen.node, leave: () => stop.abort(), done };
}

async function download(id, path, name) {
  const pieces = [];
  let n = 0;
  await follow("FileService/Read", { sandboxId: id, path }, ({ data = "" }) => {
    const piece = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    n += piece.length;
    if (n > DOWNLOAD_MAX) throw new ApiError("out_of_range", `More than ${bytes(DOWNLOAD_MAX)}: cloche cp`);
    pieces.push(piece);
  });
  const url = URL.createObjectURL(new Blob(pieces, { type: "application/octet-stream" }));
  el("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

// The folder at `path`, and what lies in it.
function files(id) {
  let path = "/home/user";
  const here = el("code", {}), chosen = el("input", { type: "file", hidden: true, "aria-label": "file" });
  const full = (name) => `${path === "/" ? "" : path}/${name}`;
  const go = (to) => async () => { path = to; await update(); };
  const list = table("Files", [
    {
      title: "Name",
      cell: (f) => cell(full(f.name), f.type === "FILE_TYPE_DIRECTORY" ? button(`${f.name}/`, go(full(f.name)), ".link")
        : button(f.name, () => download(id, full(f.name), f.name), ".link")),
    },
    { title: "Size", kind: "number", cell: (f) => (f.type === "FILE_TYPE_REGULAR" ? bytes(f.size) : word(f.type, "FILE_TYPE_")) },
    { title: "Changed", kind: "number", cell: (f) => since(f.modified) },
  ], "Nothing is in this folder.");

  async function update() {
    await fill(list, "FileService/List", "files", { sandboxId: id, path }, (f) => ({ ...f, id: full(f.name) }));
    here.textContent = path;
  }
  list.node.addEventListener("more", (event) => {
    event.stopPropagation(); // these are not asked for again and again
    update().catch(fail);
  });
  chosen.addEventListener("change", doing(async () => {
    const [file] = chosen.files;
    chosen.value = "";
    if (!file) return;
    if (file.size > UPLOAD_MAX) throw new ApiError("out_of_range", `More than ${bytes(UPLOAD_MAX)}: cloche cp`);
    await upload(id, full(file.name), file);
    await update();
  }));
  return el("details", { ontoggle: (e) => e.target.open && update().catch(fail) },
    el("summary", {}, "Files"),
    el("p.inline", {}, button("Up", () => go(path.replace(/\/[^/]*$/, "") || "/")()), here, button("Upload", () => chosen.click()), button("Look again", update), chosen),
    list.node);
}

// Servers in it, for the browser: a link opens one port for as long as the sandbox lives.
function ports(id) {
  const number = el("input", { type: "number", name: "port", "aria-label": "port", min: 1, max: 65535, placeholder: "8000", required: true });
  const links = el("ul");
  const node = el("details", { hidden: true }, el("summary", {}, "Ports"),
    el("form.inline", {
      onsubmit: doing(async () => {
        const { link } = await call("PortService/CreateLink", { sandboxId: id, port: Number(number.value) });
        const [, box, secret] = link.split("_");
        const url = (await config).port_url.replace("//0-", `//${number.value}-`).replaceAll("{id}", box).replaceAll("{secret}", secret);
        links.append(el("li", {}, el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, `port ${number.value}`)));
      }),
    }, number, el("button", { type: "submit" }, "Link")), links);
  config.then((known) => { node.hidden = !known.port_url; });
  return node;
}

function sandbox(id) {
  const head = el("p.row"), about = el("div"), charts = el("div.charts"), outputs = el("div");
  const line = el("input", { name: "command", "aria-label": "command", placeholder: "a shell command", autocomplete: "off", spellcheck: "false", required: true });
  const followers = [], terminal = shellIn(id, fail);
  let known = "";

  function watch(execId) {
    followers.splice(0).forEach((f) => f.leave());
    const f = follower("ExecService/Attach", { sandboxId: id, execId });
    followers.push(f);
    f.done.then(() => view?.refresh());
    outputs.replaceChildren(f.node);
  }
  const commands = table("Commands", [
    { title: "Command", kind: "command", cell: (e) => (e.argv ?? []).join(" ") },
    { title: "State", cell: (e) => badge(e.running ? "running" : outcome(e.result)) },
    { title: "Began", kind: "number", cell: (e) => since(e.started) },
    {
      title: "",
      cell: (e) => cell(String(e.running),
        button("Output", () => watch(e.id)),
        e.running ? button("Stop", () => call("ExecService/Signal", { sandboxId: id, execId: e.id, signal: 15 }), ".danger") : null),
    },
  ], "No command was run yet.");

  const run = el("form.inline", {
    onsubmit: doing(async () => {
      const { execId } = await call("ExecService/Start", { sandboxId: id, command: { argv: ["sh", "-c", line.value] } });
      line.select();
      watch(execId);
    }),
  }, line, el("button.primary", { type: "submit" }, "Run"), button("Terminal", () => { terminal.open(); }));

  function showUsage(samples, vcpus) {
    const loads = samples.map((s) => Number(s.cpuNs ?? 0) / Number(s.spanNs || 1));
    const last = samples.at(-1);
    charts.replaceChildren(
      chart("CPU", loads, vcpus || 1, cpu(last)),
      chart("Memory", samples.map((s) => Number(s.memoryUsedBytes ?? 0)), Number(last?.memoryTotalBytes ?? 0), memory(last)));
  }

  return {
    node: el("section", {}, el("header", {}, el("h2", {}, id), head), about, charts, run, terminal.node, outputs, commands.node, files(id), ports(id),
      mayRead(who) ? happened(id, button) : null),
    async refresh(tick = 0) {
      const { sandbox: box } = await call("SandboxService/Get", { sandboxId: id });
      const state = stateOf(box);
      if (known !== state) head.replaceChildren(badge(state), sandboxActions(box));
      [...run.elements].forEach((field) => { field.disabled = state === "ended"; });
      known = state;
      about.replaceChildren(facts([
        ["Template", box.template], ["Guest", `${box.driver ?? ""} · ${word(box.guestSeparation, "GUEST_SEPARATION_")}`],
        ["Age", since(box.created)], ["Ends in", until(box.expires)], ["Worker", box.workerId],
        ["Network", (box.networkGrant?.allow ?? []).join(", ") || "none"], ["Copy of", box.forkedFrom],
        ["Labels", (box.labels ?? []).map((l) => `${l.key}=${l.value ?? ""}`).join(", ")], ["Why it ended", word(box.reason, "REASON_")],
      ]));
      if (state === "ended") return;
      await fill(commands, "ExecService/List", "execs", { sandboxId: id });
      if (tick % USAGE_EVERY) return;
      const { samples = [], vcpus } = await call("SandboxService/Usage", { unitId: id });
      showUsage(samples, vcpus);
    },
    leave: () => [terminal, ...followers].forEach((f) => f.leave()),
  };
}

function job(id) {
  const head = el("p.row"), about = el("div");
  const output = follower("JobService/Watch", { jobId: id });
  let known = "";
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, id), head), about, output.node, mayRead(who) ? happened(id, button) : null),
    async refresh() {
      const { job: j } = await call("JobService/Get", { jobId: id });
      const state = stateOf(j);
      const cancel = button("Cancel", () => call("JobService/Cancel", { jobId: id }), ".danger");
      if (known !== state) head.replaceChildren(badge(state), ...(state === "ended" ? [] : [cancel]));
      known = state;
      about.replaceChildren(facts([
        ["Command", (j.spec?.command?.argv ?? []).join(" ")], ["Template", j.spec?.template], ["Snapshot", j.spec?.snapshot],
        ["Result", outcome(j.result)], ["Took", between(j.started, j.ended)], ["Age", since(j.created)],
        ["CPU time", j.result?.usage?.cpuNs ? seconds(Number(j.result.usage.cpuNs) / 1e9) : ""],
        ["Most memory", j.result?.usage?.peakMemoryBytes ? bytes(j.result.usage.peakMemoryBytes) : ""],
        ["Guest", `${j.driver ?? ""} · ${word(j.guestSeparation, "GUEST_SEPARATION_")}`], ["Worker", j.workerId], ["Attempts", String(j.attempt ?? 0)],
      ]));
    },
    leave: output.leave,
  };
}

main.addEventListener("more", () => view?.refresh().catch(fail));

// --- the frame ----------------------------------------------------------------------------------

const make = { button, doing, fail };
const ownTenant = () => tenant(make, () => who, quotaTiles)(who.tenant);
const lists = new Map(Object.entries({
  sandboxes, jobs, snapshots, workers, audit: audit(fail), tenants: () => (who.scopes.includes("admin") ? tenants(make)() : ownTenant()),
}));
const may = { audit: mayRead, tenants: mayManage }; // see the list; all else whoever has a key
const ones = new Map(Object.entries({ sandbox: [sandbox, "sandboxes"], job: [job, "jobs"], tenant: [tenant(make, () => who, quotaTiles), "tenants"] }));
let view = null, who = null, tick = 0, timer = 0, beats = 0;

const QUOTAS = {
  sandboxes: ["Sandboxes", String], vcpu_milli: ["vCPUs", (n) => String(n / 1000)], memory_mib: ["Memory", (n) => bytes(n * 2 ** 20)],
  disk_mib: ["Disk", (n) => bytes(n * 2 ** 20)], cpu_ms: ["CPU time", (n) => seconds(n / 1000)], egress_bytes: ["Sent", bytes],
};

async function showQuotas(node, name) {
  const { quotas = [], queued = 0 } = await call("TenantService/GetUsage", { tenant: name });
  node.replaceChildren(...quotas.filter((q) => QUOTAS[q.dimension]).map((q) => {
    const [title, text] = QUOTAS[q.dimension], used = Number(q.used ?? 0), limit = Number(q.limit ?? 0);
    return el("div.tile", {}, el("span", {}, title), el("strong", {}, text(used)), el("small", {}, `of ${text(limit)}`),
      el("meter", { min: 0, max: limit || 1, value: used, high: limit * 0.9, "aria-label": title }));
  }), el("div.tile", {}, el("span", {}, "Queued jobs"), el("strong", {}, String(queued)), el("small", {}, "wait for room")));
}

function quotaTiles(name) {
  const node = el("div.tiles");
  return { node, refresh: () => showQuotas(node, name) };
}

function frame() {
  const tabs = [...lists.keys()].filter((name) => may[name]?.(who) ?? true).map((name) => el("a", { href: `#/${name}`, "data-tab": name }, name[0].toUpperCase() + name.slice(1)));
  const quotas = quotaTiles(who.tenant), content = el("div");
  main.replaceChildren(
    el("header.top", {}, el("h1", {}, "Cloche"), el("nav", {}, ...tabs),
      el("p.who", {}, el("strong", {}, who.tenant), ` · ${(who.scopes ?? []).join(", ")} `,
        button("Sign out", () => { key.drop(); signIn(); }))),
    quotas.node, content);
  return {
    show(next, tab) {
      tabs.forEach((a) => a.setAttribute("aria-current", a.dataset.tab === tab ? "page" : "false"));
      content.replaceChildren(next.node);
    },
    quotas: quotas.refresh,
  };
}

let shell = null;

function route() {
  if (!shell) return;
  const [, kind, id] = location.hash.split("/");
  view?.leave?.();
  say("");
  const [one, list] = (id && ones.get(kind)) || [null, lists.has(kind) ? kind : "sandboxes"];
  const next = one ? one(id) : lists.get(list)();
  view = { ...next, refresh: (n) => next.refresh(n).catch(fail) };
  shell.show(view, list);
  tick = 0;
  beat();
}

// One at a time: whoever begins a new one ends what the one before it would begin.
async function beat() {
  const mine = ++beats;
  clearTimeout(timer);
  if (shell && document.visibilityState === "visible") {
    const n = tick++;
    await Promise.all([view.refresh(n), n % USAGE_EVERY ? null : shell.quotas().catch(fail)]);
  }
  if (shell && mine === beats) timer = setTimeout(beat, EVERY_MS);
}

function signIn(why = "") {
  shell = null;
  view?.leave?.();
  view = null;
  clearTimeout(timer);
  const field = el("input", { type: "password", name: "key", "aria-label": "API key", placeholder: "clk_…", autocomplete: "off", required: true });
  main.replaceChildren(el("form.sign-in", {
    onsubmit: doing(async () => {
      key.set(field.value.trim());
      await enter();
    }),
  }, el("h1", {}, "Cloche"), el("p", {}, "Sign in with an API key: ", el("code", {}, "cloche key create TENANT"),
    " makes one, ", el("code", {}, "cloche dashboard"), " opens this page with one."),
  field, el("button.primary", { type: "submit" }, "Sign in")));
  field.focus();
  say(why, why ? "bad" : "");
}

async function enter() {
  who = await call("TenantService/WhoAmI");
  shell = frame();
  route();
}

addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#key=")) return route();
  key.fromAddress();
  enter().catch(fail);
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && shell) beat();
});

key.fromAddress();
if (key.get()) enter().catch((error) => signIn(error.message));
else signIn();
