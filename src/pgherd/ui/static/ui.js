"use strict";
// Additions to HTMX on every page: hidden pages do not poll, errors are shown, a button takes one click only.
(() => {
  const show = (text) => {
    const message = document.getElementById("message");
    if (message) message.textContent = text;
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    const polled = (event.target.getAttribute("hx-trigger") || "").startsWith("every");
    if (document.hidden && polled) event.preventDefault();
  });
  document.addEventListener("htmx:responseError", (event) => {
    const response = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    show(response.body.textContent.trim().slice(0, 400) || "The request failed.");
  });
  document.addEventListener("htmx:sendError", () => show("pgherd ui does not respond. Check that it is running."));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) show("");
  });
  // Keep the keyboard focus when a part of the page is replaced.
  let focused = "";
  document.addEventListener("htmx:beforeSwap", () => {
    focused = document.activeElement ? document.activeElement.id : "";
  });
  document.addEventListener("htmx:afterSwap", () => {
    const again = focused && document.getElementById(focused);
    if (again && document.activeElement !== again) again.focus({ preventScroll: true });
  });
  // On narrow screens the filter is closed, so that the list comes first.
  if (matchMedia("(max-width: 46rem)").matches) {
    for (const details of document.querySelectorAll("details[data-narrow]")) details.open = false;
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
