// audit.js - the audit log on the dashboard: findings, records as they come, and what happened in one unit.
//
// What records say is user code's own words: text, never markup.
import { call, follow } from "./api.js";
import { cell, el, since, table, word } from "./dom.js";

const NEWEST = 200; // records on the page
const FINDINGS_EVERY = 15; // rounds: a look goes over a day of the log
const SHOWN = 12; // of what one process did to files
const SPAN_S = 24 * 3600;

export const mayRead = (who) => (who.scopes ?? []).some((scope) => scope === "audit" || scope === "admin");

const unitLink = (id) => {
  const kind = { sbx: "sandbox", job: "job" }[/^(sbx|job)_/.exec(id)?.[1]];
  return kind ? el("a", { href: `#/${kind}/${id.split(" ")[0]}` }, id) : el("span", {}, id);
};

// {"path":"/tmp/x","size":3} -> "path /tmp/x · size 3"
const words = (fields) => Object.entries(fields)
  .map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(" ") : value}`).join(" · ");

// --- findings -----------------------------------------------------------------------------------

function findings(fail) {
  const list = table("Findings", [
    { title: "Severity", cell: (f) => cell(f.severity, el(`span.badge.${f.level}`, {}, f.level)) },
    { title: "Finding", cell: (f) => cell(f.name, el("strong", { title: f.technique ? `ATT&CK ${f.technique}` : "" }, f.name)) },
    { title: "Of", cell: (f) => cell(f.subject, unitLink(f.subject)) },
    { title: "Times", kind: "number", cell: (f) => f.count },
    { title: "Last", kind: "number", cell: (f) => since(f.last) },
    { title: "The newest", kind: "command", cell: (f) => f.value ?? "" },
    { title: "What it is, and what to do", kind: "text", cell: (f) => `${f.what} ${f.then}` },
  ], "Nothing was found in the last 24 hours.");
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Findings"), el("p.dim", {}, "of the last 24 hours")), list.node),
    async refresh() {
      try {
        const unixNs = String(BigInt(Math.round(Date.now() / 1000 - SPAN_S)) * 1000000000n);
        const { findings: found = [] } = await call("AuditService/Findings", { since: { unixNs } });
        list.update(found.map((f) => ({ ...f, id: `${f.stream} ${f.seq} ${f.name} ${f.subject}`, level: word(f.severity, "FINDING_SEVERITY_") })));
      } catch (error) {
        fail(error);
      }
    },
  };
}

// --- records ------------------------------------------------------------------------------------

function records(fail) {
  const unit = el("input", { name: "unit", "aria-label": "unit", placeholder: "sbx_… or job_…", autocomplete: "off", spellcheck: "false" });
  const event = el("input", { name: "event", "aria-label": "event", placeholder: "guest.*, net.open", value: "!api.call", autocomplete: "off", spellcheck: "false" });
  const body = el("tbody");
  const state = el("p.dim", { role: "status" });
  let stop = new AbortController();

  function show(line) {
    const r = JSON.parse(line);
    const { unit: of, object, ...rest } = r.fields;
    const subject = of ?? (/^(sbx|job)_/.test(object ?? "") ? object : "");
    body.prepend(el("tr", { "data-seq": `${r.stream} ${r.seq}` }, el("td.number", {}, r.ts.slice(11, 23)), el("td", {}, r.event), el("td", {}, unitLink(subject)),
      el("td", { title: `${r.stream} ${r.seq}` }, r.assurance), el("td.command", { title: words(rest) }, words(rest))));
    while (body.childElementCount > NEWEST) body.lastChild.remove();
  }

  async function look() {
    stop.abort();
    stop = new AbortController();
    body.replaceChildren();
    state.textContent = "reads …";
    const events = event.value.split(/[\s,]+/).filter(Boolean);
    const { signal } = stop;
    try {
      await follow("AuditService/Query", { unit: unit.value.trim(), events, newest: NEWEST, follow: true }, (message) => {
        (message.records ?? []).forEach(show);
        if (message.caughtUp) state.textContent = message.unreadable ? `${message.unreadable} lines are damaged: cloche audit verify` : "as it comes";
      }, signal);
      state.textContent = "ended";
    } catch (error) {
      if (error.name === "AbortError") return;
      state.textContent = error.message;
      fail(error);
    }
  }
  return {
    node: el("section", {}, el("header", {}, el("h2", {}, "Records"), state),
      el("form.inline", { onsubmit: (e) => { e.preventDefault(); look(); } }, unit, event, el("button", { type: "submit" }, "Look")),
      el("div.scroll", {}, el("table", { "aria-label": "Records" },
        el("thead", {}, el("tr", {}, ...["Time (UTC)", "Event", "Of", "Seen by", "What"].map((t) => el("th", {}, t)))), body))),
    look,
    leave: () => stop.abort(),
  };
}

// A view, as those of app.js.
export const audit = (fail) => () => {
  const found = findings(fail), lines = records(fail);
  lines.look();
  return {
    node: el("div.stack", {}, found.node, lines.node),
    refresh: async (tick = 0) => { if (tick % FINDINGS_EVERY === 0) await found.refresh(); },
    leave: lines.leave,
  };
};

// --- what happened in one unit ------------------------------------------------------------------

function branch(node) {
  const text = el("span", {}, el("time", {}, (node.at ?? "").slice(11, 19)), ` ${node.text}${node.times > 1 ? ` × ${node.times}` : ""}`);
  const nodes = node.nodes ?? [];
  if (!nodes.length) return el(`li.${node.what}`, {}, text);
  const counts = new Map();
  const shown = nodes.filter((child) => {
    const n = (counts.get(child.what) ?? 0) + 1;
    counts.set(child.what, n);
    return child.nodes?.length || n <= SHOWN;
  });
  const more = nodes.length - shown.length;
  return el(`li.${node.what}`, {}, el("details", { open: true }, el("summary", {}, text),
    el("ul", {}, ...shown.map(branch), more ? el("li.dim", {}, `… and ${more} more: cloche audit tree --all`) : null)));
}

// Made when it is opened, and again when asked for.
export function happened(id, button) {
  const place = el("div.tree");
  async function update() {
    place.replaceChildren(el("p.dim", {}, "reads …"));
    try {
      const { tree, records: n } = await call("AuditService/Tree", { unit: id });
      place.replaceChildren(el("ul", {}, branch(JSON.parse(tree))), el("p.dim", {}, `${n} records`));
    } catch (error) {
      place.replaceChildren(el("p.dim", {}, error.message));
    }
  }
  return el("details", { ontoggle: (e) => e.target === e.currentTarget && e.target.open && update() },
    el("summary", {}, "What happened"), el("p.inline", {}, button("Look again", update)), place);
}
