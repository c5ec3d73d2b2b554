// Portkey's gateway 1.15.2 (seen 2026-11-16) listens on every interface without an option, and answers 500 to every
// streamed request on Node 20 and 24 because it appends to the immutable headers of a fetched answer.
import net from "node:net";

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...others) {
  return listen.call(this, port, "127.0.0.1", ...others.filter((each) => typeof each === "function"));
};

const fetchAnswer = globalThis.fetch;
globalThis.fetch = async (...asked) => {
  const answer = await fetchAnswer(...asked);
  return new Response(answer.body, { status: answer.status, headers: new Headers(answer.headers) });
};
