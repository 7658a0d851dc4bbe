// Starts one of the emulators as a child process, and an endpoint that notes what it
// is delivered. Everything listens on the loopback and ends with the test.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { once } from "node:events";

const hubsync = process.env.HUBSYNC ?? "../.bin/hubsync";

export async function emulate(t, ...args) {
  const child = spawn(hubsync, ["emulate", ...args, "--addr", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit");
  t.after(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  // The stream stays open: a child that writes into a closed pipe dies of it.
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => (said += chunk));
  await until(() => said.split("\n").length > 2, "the emulator's address");
  return { url: said.match(/http:\/\/127\.0\.0\.1:\d+/)[0], said };
}

export async function endpoint(t, answer = () => ({ status: 200 })) {
  const got = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      got.push({ url: request.url, headers: request.headers, body });
      const { status, headers } = answer(got.length, request);
      response.writeHead(status, headers).end();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${server.address().port}/hook`, got };
}

export async function until(condition, what) {
  for (let i = 0; i < 500; i++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`waited in vain: ${what}`);
}
