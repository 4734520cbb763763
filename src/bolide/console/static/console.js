// What the frame of the pages does without asking the server.
(() => {
  const year = 31536000;
  const setCookie = (text) => { document.cookie = `${text}; path=/; max-age=${year}; samesite=lax`; };
  const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if (!/(^|; )bolide_time_zone=/.test(document.cookie)) {
    setCookie(`bolide_time_zone=${zone()}`);
  }
  window.markCurrentPage = (paths) => {
    for (const link of document.querySelectorAll(".side-link")) {
      if (paths.includes(link.getAttribute("href"))) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  };
  const openSide = (open) => {
    document.body.classList.toggle("side-open", open);
    if (open) document.querySelector(".side a")?.focus();
  };
  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    if (at("[data-open-side]")) openSide(true);
    else if (at("[data-close-side]") || at(".side a")) openSide(false);
    const cookie = at("[data-cookie]");
    if (cookie) {
      setCookie(cookie.dataset.cookie.replace("=browser", `=${zone()}`));
      location.reload();
    }
    const page = at("[data-goto]");
    if (page) location.href = page.dataset.goto;
    const target = at("[data-open]");
    if (target) window.open(target.dataset.open, "_blank", "noopener");
    if (at("[data-logout]")) {
      const form = Object.assign(document.createElement("form"), { method: "post", action: "/logout" });
      document.body.append(form);
      form.submit();
    }
    const skip = at(".skip-link");
    if (skip) { event.preventDefault(); document.getElementById("contents")?.focus(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") openSide(false);
    if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName)
        && !document.activeElement?.isContentEditable && !document.querySelector(".q-dialog")) {
      const field = document.querySelector(".top-search input[type=text], .top-search .q-input input");
      if (field) { event.preventDefault(); field.focus(); }
    }
  });
  // A table that is wider than its place is scrolled by the keyboard, too.
  let isMarking = false;
  const markScrolling = () => {
    isMarking = false;
    for (const each of document.querySelectorAll(".q-table__middle")) {
      if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
      else each.removeAttribute("tabindex");
    }
  };
  const markSoon = () => {
    if (!isMarking) setTimeout(markScrolling, 250);
    isMarking = true;
  };
  new MutationObserver(markSoon).observe(document.documentElement, { childList: true, subtree: true });
  addEventListener("resize", markSoon);
})();
