"use strict";
// What every page does beside HTMX: no request for a page that nobody sees, errors said, no second click on a button.
(() => {
  const say = (text) => {
    const place = document.getElementById("said");
    if (place) place.textContent = text;
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    const polled = (event.target.getAttribute("hx-trigger") || "").startsWith("every");
    if (document.hidden && polled) event.preventDefault();
  });
  document.addEventListener("htmx:responseError", (event) => {
    const answer = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    say(answer.body.textContent.trim().slice(0, 400) || "That did not work.");
  });
  document.addEventListener("htmx:sendError", () => say("pgherd ui does not answer. Is it still running?"));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) say("");
  });
  // After a part of the page has been replaced, the keyboard stays where it was.
  let focused = "";
  document.addEventListener("htmx:beforeSwap", () => {
    focused = document.activeElement ? document.activeElement.id : "";
  });
  document.addEventListener("htmx:afterSwap", () => {
    const again = focused && document.getElementById(focused);
    if (again && document.activeElement !== again) again.focus({ preventScroll: true });
  });
  // Where there is little room the list comes before what narrows it.
  if (matchMedia("(max-width: 46rem)").matches) {
    for (const one of document.querySelectorAll("details[data-narrow]")) one.open = false;
  }
  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (event.defaultPrevented || !button || !button.dataset.busy) return;
    button.textContent = button.dataset.busy;
    setTimeout(() => { button.disabled = true; }, 0);
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
})();
