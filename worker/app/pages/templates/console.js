// Replaces the rows of the list when results arrive. Without scripts the page works as well: reload it.
"use strict";
const rows = document.getElementById("rows");
if (rows) {
  const source = new EventSource("/events");
  source.addEventListener("changed", async () => {
    if (window.scrollY > 200 || rows.contains(document.activeElement)) return; // somebody reads
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ["rows", "count"]) {
      const fresh = page.getElementById(id);
      if (fresh) document.getElementById(id).replaceChildren(...fresh.childNodes);
    }
  });
}
