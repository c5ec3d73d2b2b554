// @ts-check
// Turns the ticket of a one-time link into a login. The ticket is behind the #, which no server and no log ever sees,
// and is taken out of the address before anything else is done.

import { send, takeBack, Trouble } from "./shared/api.js";

async function logIn() {
  const ticket = location.hash.slice(1);
  if (!ticket) return;
  history.replaceState(null, "", "/login");
  try {
    await send("POST", "/login", { ticket });
    location.replace(takeBack());
  } catch (error) {
    show(error instanceof Trouble ? `${error.message} ${error.advice}` : String(error));
  }
}

/** @param {string} text where what stands between backticks is a command */
function show(text) {
  const parts = text.split("`").map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
  document.getElementById("status")?.replaceChildren(...parts);
}

// A link that is opened where this page is open already changes only what is behind the #, and loads nothing.
addEventListener("hashchange", logIn);
logIn();
