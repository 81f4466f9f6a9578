(() => {
  "use strict";

  // ------------------------------------------------------------ folded parts

  // An anchor may lie in a folded part: unfold what holds it.
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) {
      if (part.tagName === "DETAILS") part.open = true;
    }
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  if (location.hash) unfold();

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });

  // ------------------------------------------------------------ sections

  const links = new Map();
  for (const link of document.querySelectorAll(".toc a")) links.set(link.hash.slice(1), link);
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) watcher.observe(section);
  }

  // ------------------------------------------------------------ lineage

  const data = document.getElementById("graph");
  if (!data) return;
  const cites = new Map(Object.entries(JSON.parse(data.textContent)));
  const drawing = document.querySelector("svg.lineage");
  const nodes = [...document.querySelectorAll("svg.lineage [data-id]")];
  const edges = [...document.querySelectorAll("svg.lineage [data-edge]")];
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  const head = document.getElementById("panel-head");
  let opener = null;

  const ancestorsOf = (id) => {
    const found = new Set();
    const open = [...(cites.get(id) ?? [])];
    while (open.length) {
      const next = open.pop();
      if (found.has(next)) continue;
      found.add(next);
      open.push(...(cites.get(next) ?? []));
    }
    return found;
  };

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const told = (id) => {
    const source = document.getElementById(id);
    const item = element("li");
    const meta = element("p", "meta");
    const link = element("a", "id", id);
    link.href = `#${id}`;
    const who = (source?.querySelector(".who") ?? source?.closest(".entry")?.querySelector(".who"))?.textContent ?? "";
    meta.append(element("bdi", "who", who), " ", link, ` ${source?.dataset.kind ?? ""}`);
    const text = element("p", "text");
    text.append(element("bdi", "", (source?.querySelector(".text") ?? source)?.textContent.trim() ?? ""));
    item.append(meta, text);
    return item;
  };

  const clear = () => {
    drawing?.classList.remove("choosing");
    for (const part of [...nodes, ...edges]) part.classList.remove("lit", "chosen");
    document.body.classList.remove("panel-open");
    body.replaceChildren();
    opener?.focus();
    opener = null;
  };

  // The drawing may be far wider than its box: put the chosen one near its right end, what led to it before it.
  const bringIntoView = (id) => {
    const node = nodes.find((one) => one.dataset.id === id);
    const box = drawing?.closest(".scroll");
    if (node && box) box.scrollLeft = node.getBBox().x + 80 - box.clientWidth;
  };

  const show = (id, from) => {
    const found = ancestorsOf(id);
    document.body.classList.add("panel-open");
    drawing?.classList.add("choosing");
    for (const node of nodes) {
      node.classList.toggle("lit", found.has(node.dataset.id));
      node.classList.toggle("chosen", node.dataset.id === id);
    }
    for (const edge of edges) {
      const [source, to] = edge.dataset.edge.split(" ");
      edge.classList.toggle("lit", found.has(source) && (found.has(to) || to === id));
    }
    bringIntoView(id);
    opener = from;
    head.textContent = `Lineage of ${id}`;
    const count = found.size;
    const line = count === 0 ? "Nothing earlier led to it." : `${count} earlier contribution${count === 1 ? "" : "s"} led to it.`;
    const list = element("ol", "ancestors");
    for (const name of cites.keys()) if (found.has(name)) list.append(told(name));
    const end = element("ol", "ancestors result");
    end.append(told(id));
    body.replaceChildren(element("p", "muted", line), list, end);
    panel.scrollTop = 0;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-lineage], svg.lineage [role=button]");
    if (button) show(button.dataset.lineage ?? button.dataset.id, button);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") clear();
    const node = event.target.closest?.("svg.lineage [role=button]");
    if (node && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      show(node.dataset.id, node);
    }
  });
  document.getElementById("panel-close").addEventListener("click", clear);
})();
