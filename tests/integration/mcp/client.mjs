// A client on one of the TypeScript SDKs: does what its task asks, and prints what it saw.
//
//   node client.mjs TASK          TASK, JSON: modules, sdk (1 | 2), mode (of SDK 2),
//                                 door {command} | {socket} | {url, token},
//                                 go (a file that lets `steps` end), fresh {from, to} (a new tool)
import { cpSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { pathToFileURL } from "node:url";

const task = JSON.parse(process.argv[2]);
const require = createRequire(pathToFileURL(`${task.modules}/any.js`));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

/** The transport that MCP suggests for byte streams: a message a line, here over a Unix socket. */
class SocketTransport {
  #rest = "";

  constructor(path) {
    this.path = path;
  }

  start() {
    return new Promise((resolve, reject) => {
      this.link = connect(this.path, resolve).setEncoding("utf8");
      this.link.once("error", reject);
      this.link.on("error", (error) => this.onerror?.(error));
      this.link.on("close", () => this.onclose?.());
      this.link.on("data", (text) => {
        const lines = (this.#rest + text).split("\n");
        this.#rest = lines.pop();
        for (const line of lines) this.onmessage?.(JSON.parse(line));
      });
    });
  }

  async send(message) {
    this.link.write(`${JSON.stringify(message)}\n`);
  }

  async close() {
    this.link.destroy();
  }
}

const parts =
  task.sdk === 1
    ? ["sdk/client/index.js", "sdk/client/stdio.js", "sdk/client/streamableHttp.js", "sdk/types.js"]
    : ["client", "client/stdio"];
const kit = Object.assign({}, ...(await Promise.all(parts.map((name) => load(`@modelcontextprotocol/${name}`)))));

function transport({ command, socket, url, token }) {
  if (socket) return new SocketTransport(socket);
  if (command) return new kit.StdioClientTransport({ command: command[0], args: command.slice(1), stderr: "inherit" });
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  return new kit.StreamableHTTPClientTransport(new URL(url), { requestInit });
}

const told = Promise.withResolvers();
const listChanged = { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => told.resolve() } };
const options = { listChanged, ...(task.mode && { versionNegotiation: { mode: task.mode } }) };
const client = new kit.Client({ name: "tests", version: "0" }, options);
const door = transport(task.door);
await client.connect(door);

const call = (name, args, options) =>
  task.sdk === 1
    ? client.callTool({ name, arguments: args }, undefined, options)
    : client.callTool({ name, arguments: args }, options);
const refused = (error) => ({ code: error.code, message: error.message });
const text = (result) => result.content.map((block) => block.text);
const saw = {
  server: client.getServerVersion().name,
  version: client.getNegotiatedProtocolVersion?.() ?? door.protocolVersion,
};

const { tools } = await client.listTools();
saw.names = tools.map((tool) => tool.name);
saw.says = tools.find((tool) => tool.name === "says");
saw.called = text(await call("says", { text: "héllo" }));
const wrong = await call("says", { text: "a", volume: 11 });
saw.wrong = { isError: wrong.isError, text: text(wrong) };
saw.unknown = await call("say", {}).catch(refused);

saw.updates = [];
const onprogress = ({ progress, message }) => {
  saw.updates.push([progress, message]);
  // Without this file the tool never ends: the update came while it ran.
  writeFileSync(task.go.path, "");
};
saw.stepped = text(await call("steps", { text: task.go.name }, { onprogress }));

const abort = new AbortController();
const hanging = call("hangs", {}, { signal: abort.signal, onprogress: () => abort.abort("enough") });
saw.cancelled = await hanging.then(text, (error) => String(error.message ?? error));
saw.afterwards = text(await call("says", { text: "on" }));

cpSync(task.fresh.from, task.fresh.to, { recursive: true });
await told.promise;
saw.told = (await client.listTools()).tools.map((tool) => tool.name);

await client.close();
console.log(JSON.stringify(saw));
