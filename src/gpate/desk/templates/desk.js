"use strict";
// Every page works without this script. It keeps progress and meaning up to date, and copies commands.

async function fragment(url) {
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function show(target, found) {
  target.replaceChildren(...found.childNodes);
  target.querySelectorAll("[data-copy]").forEach(copying);
}

function copying(button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
    button.textContent = "Copied";
  });
}

const polled = document.querySelector("[data-poll]");
if (polled) {
  const look = async () => {
    let wait = 1000;
    try {
      const part = (await fragment(polled.dataset.poll)).getElementById("progress");
      const shown = document.getElementById("progress");
      document.getElementById("offline").hidden = true;
      const typing = document.activeElement.matches("input, select");
      if (part.dataset.state !== polled.dataset.state) {
        if (!typing) { location.reload(); return; }
      } else if (shown && shown.innerHTML !== part.innerHTML) {
        show(shown, part);
      }
    } catch {
      document.getElementById("offline").hidden = false;
      wait = 5000;
    }
    setTimeout(look, wait);
  };
  setTimeout(look, 500);
}

const form = document.querySelector("form[data-live]");
if (form) {
  let timer = 0, latest = 0;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const number = ++latest;
      const fields = new URLSearchParams(new FormData(form));
      fields.delete("form_token");
      const part = await fragment(`${form.dataset.live}?${fields}`);
      if (number !== latest) return;
      for (const found of [...part.body.children]) show(document.getElementById(found.id), found);
      const spoken = document.querySelector("#meaning [data-spoken]");
      document.getElementById("spoken").textContent = spoken ? spoken.textContent : "";
    }, 250);
  });
}

document.querySelectorAll("[data-copy]").forEach(copying);
document.querySelectorAll("[data-focus]").forEach((element) => element.focus());
document.querySelectorAll("button[data-once]").forEach((button) => {
  button.form.addEventListener("submit", () => { button.disabled = true; });
  window.addEventListener("pageshow", () => { button.disabled = false; });
});
