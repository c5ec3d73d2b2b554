// @ts-check
// Turns the ticket of a one-time link into a login. The ticket is behind the #, which no server and no log ever sees,
// and is taken out of the address before anything else is done.

import { send, Trouble } from "./shared/api.js";

const ticket = location.hash.slice(1);

async function logIn() {
  history.replaceState(null, "", "/login");
  try {
    await send("POST", "/login", { ticket });
    location.replace("/");
  } catch (error) {
    const status = document.getElementById("status");
    if (status) status.textContent = error instanceof Trouble ? `${error.message} ${error.advice}` : String(error);
  }
}

if (ticket) logIn();
