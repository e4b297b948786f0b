/**
 * The board's tools in the coding agent pi.
 *
 *     mkdir -p ~/.pi/agent/extensions
 *     edged mcp --client pi > ~/.pi/agent/extensions/edged.ts
 *
 * It starts `edged mcp`, a pipe to the daemon of this machine. EDGED_MCP names another
 * command, such as "ssh ada@board edged mcp" for a board elsewhere.
 */

import { spawn, type ChildProcess } from "node:child_process";
import type { ExtensionAPI } from "@mariozechner/pi-coding-agent";
import { Type } from "typebox";

/** Where `edged mcp --client pi` printed this, that machine's own command. */
const OWN = ["edged", "mcp"];
const NAMED = process.env.EDGED_MCP?.trim();
const COMMAND = NAMED ? NAMED.split(/\s+/) : OWN;
const PROTOCOL = "2025-11-25";
/** Milliseconds for a connection, and for a list; a call has the tool's own limit. */
const ANSWER_MS = 30_000;
const LINE_MAX = 16 << 20;
const STDERR_MAX = 2_000;

type Block = { type: string; text?: string; data?: string; mimeType?: string; [key: string]: unknown };
type Definition = {
	name: string;
	title?: string;
	description?: string;
	inputSchema: Record<string, unknown>;
	annotations?: { title?: string };
};
type Result = { content: Block[]; isError?: boolean; structuredContent?: unknown };
type Waiting = {
	resolve: (value: any) => void;
	reject: (error: Error) => void;
	progress?: (message: string) => void;
};

/** One MCP session over the pipe; a new one is made when it broke. */
class Board {
	private child: ChildProcess;
	private waiting = new Map<number, Waiting>();
	private next = 1;
	private rest = "";
	private said = "";
	closed = false;

	constructor(private readonly changed: () => void) {
		const [program, ...words] = COMMAND;
		this.child = spawn(program, words, { stdio: ["pipe", "pipe", "pipe"] });
		this.child.stdout!.setEncoding("utf8");
		this.child.stdout!.on("data", (text: string) => this.take(text));
		this.child.stderr!.setEncoding("utf8");
		this.child.stderr!.on("data", (text: string) => {
			this.said = (this.said + text).slice(-STDERR_MAX);
		});
		// A pipe that broke is told of by its end.
		this.child.stdin!.on("error", () => {});
		this.child.on("error", (error) => this.end(`${COMMAND.join(" ")}: ${error.message}`));
		this.child.on("close", () => this.end(this.said.trim() || `${COMMAND.join(" ")} ended`));
	}

	async open(): Promise<void> {
		await this.ask("initialize", {
			protocolVersion: PROTOCOL,
			capabilities: {},
			clientInfo: { name: "pi", version: "1" },
		});
		this.tell("notifications/initialized");
	}

	async tools(): Promise<Definition[]> {
		const found: Definition[] = [];
		let cursor: string | undefined;
		do {
			const page = await this.ask("tools/list", cursor === undefined ? {} : { cursor });
			found.push(...page.tools);
			cursor = page.nextCursor;
		} while (cursor !== undefined);
		return found;
	}

	call(
		name: string,
		input: unknown,
		signal: AbortSignal | undefined,
		progress: (message: string) => void,
	): Promise<Result> {
		const id = this.next;
		const params = { name, arguments: input, _meta: { progressToken: id } };
		const stop = () => {
			if (this.waiting.delete(id)) {
				this.tell("notifications/cancelled", { requestId: id, reason: "cancelled in pi" });
				reject(new Error("cancelled"));
			}
		};
		let reject: (error: Error) => void = () => {};
		const answer = new Promise<Result>((resolve, refuse) => {
			reject = refuse;
			this.send("tools/call", params, { resolve, reject: refuse, progress });
		});
		if (signal?.aborted) stop();
		signal?.addEventListener("abort", stop, { once: true });
		return answer.finally(() => signal?.removeEventListener("abort", stop));
	}

	tell(method: string, params: object = {}): void {
		this.write({ jsonrpc: "2.0", method, params });
	}

	close(): void {
		this.child.stdin!.end();
	}

	private ask(method: string, params: object): Promise<any> {
		return new Promise((resolve, reject) => {
			const late = setTimeout(() => {
				reject(new Error(`edged: no answer to ${method} within ${ANSWER_MS / 1000} s`));
				this.child.kill();
			}, ANSWER_MS);
			this.send(method, params, {
				resolve: (value) => (clearTimeout(late), resolve(value)),
				reject: (error) => (clearTimeout(late), reject(error)),
			});
		});
	}

	private send(method: string, params: object, waiting: Waiting): void {
		if (this.closed) {
			waiting.reject(new Error(`edged: ${this.said.trim() || "the pipe is closed"}`));
			return;
		}
		const id = this.next++;
		this.waiting.set(id, waiting);
		this.write({ jsonrpc: "2.0", id, method, params });
	}

	private write(message: object): void {
		if (!this.closed) this.child.stdin!.write(`${JSON.stringify(message)}\n`);
	}

	private take(text: string): void {
		const lines = (this.rest + text).split("\n");
		this.rest = lines.pop()!;
		if (this.rest.length > LINE_MAX) this.child.kill();
		for (const line of lines) {
			if (line.trim()) this.receive(line);
		}
	}

	private receive(line: string): void {
		let message: any;
		try {
			message = JSON.parse(line);
		} catch {
			return;
		}
		if (message.method === "notifications/progress") {
			const { progressToken, message: words } = message.params ?? {};
			if (words) this.waiting.get(progressToken)?.progress?.(words);
		} else if (message.method === "notifications/tools/list_changed") {
			this.changed();
		} else if (message.method === "ping") {
			this.write({ jsonrpc: "2.0", id: message.id, result: {} });
		} else if (message.method !== undefined && message.id !== undefined) {
			const error = { code: -32601, message: `pi has no ${message.method}` };
			this.write({ jsonrpc: "2.0", id: message.id, error });
		} else if (message.method === undefined) {
			const waiting = this.waiting.get(message.id);
			this.waiting.delete(message.id);
			if (message.error) waiting?.reject(new Error(message.error.message));
			else waiting?.resolve(message.result);
		}
	}

	private end(why: string): void {
		if (this.closed) return;
		this.closed = true;
		this.said = why;
		for (const waiting of this.waiting.values()) waiting.reject(new Error(`edged: ${why}`));
		this.waiting.clear();
	}
}

/** Content as pi has it: text and images; all else by its text, or its address. */
function shown(content: Block[]): any[] {
	return content.map((block) => {
		if (block.type === "text" || block.type === "image") return block;
		const resource = block.resource as { text?: string; uri?: string } | undefined;
		return { type: "text", text: resource?.text ?? String(block.uri ?? resource?.uri ?? block.type) };
	});
}

const PI_TOOLS = new Set(["bash", "edit", "find", "grep", "ls", "read", "write"]);

function shownName(name: string): string {
	return PI_TOOLS.has(name) ? `edged_${name}` : name;
}

function text(content: Block[]): string {
	return content.map((block) => block.text ?? `(${block.type})`).join("\n");
}

export default async function (pi: ExtensionAPI) {
	let board: Board | undefined;
	let opening: Promise<Board> | undefined;
	let listing: Promise<void> | undefined;
	let next: Promise<void> | undefined;
	const registered = new Map<string, string>();

	async function fresh(): Promise<Board> {
		const made = new Board(() => void list());
		await made.open();
		board = made;
		return made;
	}

	function connected(): Promise<Board> {
		if (board !== undefined && !board.closed) return Promise.resolve(board);
		opening ??= fresh().finally(() => (opening = undefined));
		return opening;
	}

	function register(tool: Definition): void {
		const facts = JSON.stringify(tool);
		if (registered.get(tool.name) === facts) return;
		registered.set(tool.name, facts);
		const description = tool.description ?? tool.name;
		pi.registerTool({
			// A tool of the board never stands in for one of pi's own.
			name: shownName(tool.name),
			label: tool.title ?? tool.annotations?.title ?? tool.name,
			description,
			// What strangers wrote of their tools is no part of the prompt.
			promptSnippet: tool.name.startsWith("mcp_") ? undefined : description.split("\n", 1)[0],
			parameters: Type.Unsafe<Record<string, unknown>>(tool.inputSchema),
			async execute(_id, params, signal, onUpdate) {
				const to = await connected();
				const result = await to.call(tool.name, params, signal, (words) =>
					onUpdate?.({ content: [{ type: "text", text: words }], details: {} }),
				);
				// What a search found is to be there when the model is asked again.
				if (tool.name.startsWith("tool_search_")) await list();
				if (result.isError) throw new Error(text(result.content));
				return { content: shown(result.content), details: result.structuredContent ?? {} };
			},
		});
	}

	/** Sees to it that the tools are those of now: one that is under way may have asked before. */
	function list(): Promise<void> {
		if (listing === undefined) return (listing = read().finally(() => (listing = undefined)));
		next ??= listing.then(() => ((next = undefined), list()));
		return next;
	}

	/** Tools that are there now; those that are gone are taken out of the model's sight. */
	async function read(): Promise<void> {
		try {
			const tools = await (await connected()).tools();
			const names = new Set(tools.map((tool) => tool.name));
			for (const tool of tools) register(tool);
			const gone = [...registered.keys()].filter((name) => !names.has(name));
			for (const name of gone) registered.delete(name);
			if (gone.length) {
				const away = gone.map(shownName);
				pi.setActiveTools(pi.getActiveTools().filter((name) => !away.includes(name)));
			}
		} catch (error: any) {
			console.error(String(error.message ?? error));
		}
	}

	await list();
	// Hidden tools that were found are callable for so many turns of the agent.
	pi.on("turn_end", async () => board?.tell("edged/turn"));
	pi.on("session_shutdown", async () => board?.close());
}
