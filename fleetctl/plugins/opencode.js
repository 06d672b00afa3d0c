// Tells fleetd what happens in OpenCode, and puts the briefing into the agent's messages.
//
// `fleetctl hooks install opencode` copies this file into a plugin directory of OpenCode, and
// overwrites it there. It interprets little: fleetd/harness/opencode.py knows what things mean.
// OpenCode waits for most hooks as long as they take, and an error in one breaks the agent's turn.
// So nothing here throws (but to refuse an edit, where that was asked for), nothing takes longer
// than a second (five before a compaction), and what cannot be delivered goes to the spool, from
// where fleetd takes it later. It must not import anything that does not come with Node and Bun.

import { randomBytes } from "node:crypto"
import fs from "node:fs"
import net from "node:net"
import os from "node:os"
import path from "node:path"

// `fleetctl hooks install --enforce-locks --auto-locks` writes these words here.
const ARGS = []

const WAIT_MS = 1_000
const COMPACTION_WAIT_MS = 5_000
// After a call that failed the daemon is left alone for so long: nobody waits for it twice.
const LEFT_ALONE_MS = 5_000
const SPOOL_FILES = 1_000
const SPOOL_BYTES = 16_000_000
const TEXT_CHARS = 60_000
const DETAIL_CHARS = 4_000
const MOST_ITEMS = 200
const DEEPEST = 5

class Refused extends Error {}

// --- where the daemon and its spool are; the same places as in fleetd/paths.py ---

function isOurs(place) {
  try {
    return fs.lstatSync(place).uid === process.getuid()
  } catch {
    return false
  }
}

function stateDirectory() {
  const base = process.env.XDG_STATE_HOME
  if (base && path.isAbsolute(base)) return path.join(base, "fleet")
  const own = process.platform === "darwin" ? "Library/Application Support" : ".local/state"
  return path.join(os.homedir(), own, "fleet")
}

function socketPath() {
  const { FLEET_SOCKET: set, XDG_RUNTIME_DIR: runtime } = process.env
  if (set) {
    const [user, ...rest] = set.split("/")
    const { username, homedir } = os.userInfo()
    const home = { "~": os.homedir(), [`~${username}`]: homedir }[user]
    return home ? path.join(home, ...rest) : set
  }
  if (runtime && path.isAbsolute(runtime)) return path.join(runtime, "fleet", "fleetd.sock")
  const own = `/run/user/${process.getuid()}`
  return path.join(isOurs(own) ? path.join(own, "fleet") : stateDirectory(), "fleetd.sock")
}

// --- one delivery: to the daemon, else to the spool ---

let lastMs = 0

function delivery(payload) {
  const env = {}
  for (const name of ["FLEET_AGENT_ID", "FLEET_MISSION_ID"]) {
    if (process.env[name]) env[name] = process.env[name]
  }
  const id = randomBytes(16).toString("hex")
  const params = { delivery_id: id, harness: "opencode", args: ARGS, env, payload: JSON.stringify(payload) }
  // Bun counts from the start of the process, the daemon from the start of the machine.
  if (!globalThis.Bun) params.begun_us = Number(process.hrtime.bigint() / 1_000n)
  const line = JSON.stringify({ jsonrpc: "2.0", method: "hook.deliver", params, id: 1 }) + "\n"
  // The spool is read in the order of these names, so no two have the same millisecond.
  lastMs = Math.max(Date.now(), lastMs + 1)
  return { name: `${String(lastMs).padStart(13, "0")}-${id}`, line }
}

function exchange(line, ms) {
  return new Promise((resolve, reject) => {
    const place = socketPath()
    if (!isOurs(place)) throw new Error("no daemon")
    const socket = net.createConnection(place)
    let answer = ""
    const end = (settle, value) => {
      clearTimeout(timer)
      socket.destroy()
      settle(value)
    }
    const timer = setTimeout(() => end(reject, new Error("late")), ms)
    socket.setEncoding("utf8")
    socket.on("error", (error) => end(reject, error))
    socket.on("close", () => end(reject, new Error("closed")))
    socket.on("data", (text) => {
      answer += text
      if (answer.endsWith("\n")) end(resolve, answer)
    })
    socket.write(line)
  })
}

function spool(name, line) {
  try {
    const directory = path.join(stateDirectory(), "spool")
    fs.mkdirSync(directory, { recursive: true, mode: 0o700 })
    const file = path.join(directory, name)
    fs.writeFileSync(`${file}.part`, line, { mode: 0o600 })
    fs.renameSync(`${file}.part`, `${file}.json`)
    makeRoom(directory)
  } catch {
    // Nowhere to put it; the agent must not suffer for that.
  }
}

function makeRoom(directory) {
  const names = fs.readdirSync(directory).filter((name) => /^\d{13}-/.test(name)).sort().reverse()
  let bytes = 0
  names.forEach((name, place) => {
    const file = path.join(directory, name)
    bytes += fs.statSync(file, { throwIfNoEntry: false })?.size ?? 0
    if (place >= SPOOL_FILES || bytes > SPOOL_BYTES) fs.rmSync(file, { force: true })
  })
}

const waiting = new Map()
let queue = Promise.resolve()
let awayUntil = 0

// Deliveries go out one after the other, in the order of what they tell. The result is what the
// daemon says (an object, empty for silence), or null when it could not be asked.
function tell(payload, ms = WAIT_MS) {
  const { name, line } = delivery(payload)
  const deadline = Date.now() + ms
  waiting.set(name, line)
  const told = queue.then(async () => {
    const left = deadline - Date.now()
    try {
      if (left <= 0 || Date.now() < awayUntil) throw new Error("away")
      const { stdout } = JSON.parse(await exchange(line, left)).result
      return stdout ? JSON.parse(stdout) : {}
    } catch {
      if (left > 0 && Date.now() >= awayUntil) awayUntil = Date.now() + LEFT_ALONE_MS
      spool(name, line)
      return null
    } finally {
      waiting.delete(name)
    }
  })
  queue = told.catch(() => null)
  return told
}

process.on("exit", () => waiting.forEach((line, name) => spool(name, line)))

// --- what is told ---

// The beginning and the end: a revert stands in one, what a test program found in the other.
const ends = (text, chars) => `${text.slice(0, chars)}\n…\n${text.slice(-chars)}`

function shortened(value, depth = 0) {
  if (typeof value === "string") return value.length > DETAIL_CHARS ? ends(value, DETAIL_CHARS / 2) : value
  if (typeof value !== "object" || value === null) return value
  if (depth >= DEEPEST) return null
  if (Array.isArray(value)) return value.slice(0, MOST_ITEMS).map((each) => shortened(each, depth + 1))
  const pairs = Object.entries(value).slice(0, MOST_ITEMS)
  return Object.fromEntries(pairs.map(([name, each]) => [name, shortened(each, depth + 1)]))
}

const quietly = (hook) => async (input, output) => {
  try {
    await hook(input ?? {}, output ?? {})
  } catch (error) {
    if (error instanceof Refused) throw error
  }
}

// What is known of the sessions of one directory, whichever OpenCode tells of them.
function memory(directory) {
  const sessions = new Map()

  // "covered": the daemon knows of the newest compaction and had its chance to brief after it.
  function session(id, known) {
    if (!sessions.has(id)) {
      const fresh = { id, cwd: directory, resumed: !known, covered: !!known }
      sessions.set(id, { ...fresh, heard: false, answer: {}, notes: [] })
    }
    return sessions.get(id)
  }

  function say({ id: session_id, parent: parent_id, cwd, window }, event, said = {}, ms = WAIT_MS) {
    return tell({ event, session_id, parent_id, cwd, window, ...said }, ms)
  }

  function compacted(about, asks) {
    about.untold = false
    return say(about, "session.compacted", { asks, summary: about.summary })
  }

  function root(parent) {
    const above = parent && sessions.get(parent)
    return above?.parent ?? parent
  }

  // A request for permission and a question wait for a person.
  function asked(id, { action, resources, permission = action, patterns = resources, title }) {
    say(session(id), "permission.asked", shortened({ permission, patterns, title }))
  }

  function questioned(id, questions) {
    say(session(id), "question.asked", { questions: shortened(questions) })
  }

  async function close() {
    for (const about of sessions.values()) {
      if (about.untold) compacted(about, false)
      if (!about.parent) say(about, "session.closed")
    }
    await queue
  }

  return { sessions, session, say, compacted, root, asked, questioned, close }
}

// --- OpenCode 1: a function that returns hooks ---

const server = async ({ directory } = {}) => {
  const { sessions, session, say, compacted, root, asked, questioned, close } = memory(directory)
  const windows = new Map()
  let transforms = false

  // How full the window is goes with whatever is told; a message without a count says nothing.
  function used({ tokens: { input, output, reasoning, cache }, providerID, modelID }) {
    const tokens = input + output + reasoning + cache.read + cache.write
    return tokens > 0 ? { tokens, size: windows.get(`${providerID}/${modelID}`) } : undefined
  }

  function note(about, message, reply) {
    if (reply?.context) about.notes.push({ message, text: reply.context })
  }

  const events = {
    "session.created"({ info }) {
      const about = session(info.id, true)
      about.cwd = info.directory ?? directory
      about.parent = root(info.parentID)
      about.heard = true
      say(about, "session.created", { agent: info.agent, title: info.title })
    },
    "session.compacted"({ sessionID }) {
      const about = session(sessionID)
      // The messages that an earlier briefing was put into are gone, or soon will be.
      Object.assign(about, { compacting: false, covered: false, untold: true, notes: [], window: undefined })
    },
    "session.idle"({ sessionID }) {
      const about = session(sessionID)
      about.compacting = false
      if (about.untold) compacted(about, false)
      say(about, "session.idle", { last_message: about.answer.text })
    },
    "session.error"({ sessionID, error }) {
      if (!sessionID) return
      session(sessionID).compacting = false
      say(session(sessionID), "session.error", { error: shortened(error) })
    },
    "session.deleted"({ info }) {
      say(session(info.id), "session.deleted")
      sessions.delete(info.id)
    },
    "permission.asked": (properties) => asked(properties.sessionID, properties),
    "question.asked": ({ sessionID, questions }) => questioned(sessionID, questions),
    "todo.updated"({ sessionID, todos }) {
      say(session(sessionID), "todo.updated", { todos: shortened(todos) })
    },
    "message.updated"({ info }) {
      if (info.role !== "assistant") return
      const about = session(info.sessionID)
      if (info.summary === true) about.summarizing = info.id
      else if (about.answer.message !== info.id) about.answer = { message: info.id, text: about.answer.text }
      if (info.summary !== true) about.window = used(info) ?? about.window
    },
    "message.part.updated"({ part }) {
      const about = session(part.sessionID)
      if (part.type === "text" && part.text) {
        if (part.messageID === about.summarizing) about.summary = part.text.slice(0, TEXT_CHARS)
        else if (part.messageID === about.answer.message) about.answer.text = part.text.slice(0, TEXT_CHARS)
      } else if (part.type === "tool" && part.state?.status === "error") {
        const { input, error, time } = part.state
        const said = { tool: part.tool, call_id: part.callID, args: shortened(input), time }
        say(about, "tool.failed", { ...said, error: shortened(error) })
      }
    },
  }

  return {
    event: quietly(async ({ event }) => events[event.type]?.(event.properties)),

    "chat.message": quietly(async ({ sessionID }, { message, parts }) => {
      const about = session(sessionID)
      if (about.untold) compacted(about, false)
      const texts = parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
      const prompt = texts.map((part) => part.text).join("\n").slice(0, TEXT_CHARS)
      const resumed = about.resumed && !about.heard
      about.heard = true
      const reply = await say(about, "chat.message", { prompt, resumed, message_id: message?.id })
      if (reply && !resumed && !about.parent) about.covered = true
      note(about, message?.id, reply)
    }),

    "chat.params": quietly(async ({ model }) => {
      if (model?.limit?.context > 0) windows.set(`${model.providerID}/${model.id}`, model.limit.context)
    }),

    "tool.execute.before": quietly(async ({ tool, sessionID, callID }, { args }) => {
      const said = { tool, call_id: callID, args: shortened(args) }
      const asked = say(session(sessionID), "tool.execute.before", said)
      const reply = ARGS.includes("enforce-locks") ? await asked : null
      if (reply?.deny) throw new Refused(reply.deny)
    }),

    "tool.execute.after": quietly(async ({ tool, sessionID, callID, args }, { metadata }) => {
      const said = { tool, call_id: callID, args: shortened(args), metadata: shortened(metadata) }
      say(session(sessionID), "tool.execute.after", said)
    }),

    "experimental.session.compacting": quietly(async ({ sessionID }, output) => {
      const about = session(sessionID)
      about.compacting = true
      const reply = await say(about, "session.compacting", { transforms }, COMPACTION_WAIT_MS)
      if (reply?.context) output.context.push(reply.context)
    }),

    // OpenCode reads the messages anew before each request, so what was put in is put in again.
    "experimental.chat.messages.transform": quietly(async (_input, { messages }) => {
      transforms = true
      const last = messages.findLast((each) => each.info.role === "user")
      if (!last) return
      const about = session(last.info.sessionID)
      const shrunk = messages.some((each) => each.parts.some((part) => part.type === "compaction"))
      if (shrunk && !about.covered && !about.compacting) {
        const reply = await compacted(about, true)
        if (reply) about.covered = true
        note(about, last.info.id, reply)
      }
      about.notes.forEach(({ message, text }, place) => {
        const into = messages.find((each) => each.info.id === message)
        const part = { id: `prt_fleet${place}${message}`, sessionID: about.id, messageID: message }
        into?.parts.push({ ...part, type: "text", synthetic: true, text })
      })
    }),

    dispose: quietly(close),
  }
}

// --- OpenCode 2: a function that registers hooks, of which each gets one event ---

const within = (promise, ms) => {
  let timer
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms)))
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

async function setup(context) {
  // OpenCode 1 calls this too, with a context that has no hooks.
  if (typeof context?.session?.hook !== "function" || typeof context.tool?.hook !== "function") return
  const directory = context.location?.directory ?? process.cwd()
  const { sessions, session, say, compacted, root, asked, questioned, close } = memory(directory)
  const begun = Date.now()

  // A hook can be called before the event tells of its session.
  async function found(id) {
    if (sessions.has(id)) return sessions.get(id)
    const reading = Promise.resolve(context.session.get?.({ sessionID: id })).catch(() => null)
    const answer = await within(reading, WAIT_MS)
    const info = answer?.data ?? answer
    return sessions.get(id) ?? opened(id, info, info?.time?.created >= begun)
  }

  function opened(id, info, fresh) {
    const about = session(id, fresh)
    about.cwd = info?.location?.directory ?? info?.directory ?? directory
    about.parent = root(info?.parentID)
    about.announced = 0
    if (fresh) {
      about.heard = true
      say(about, "session.created", { agent: info.agent, title: info.title })
    }
    return about
  }

  function shrunk(about) {
    Object.assign(about, { compacting: false, covered: false, untold: true, notes: [] })
  }

  function over({ sessionID }) {
    const about = session(sessionID)
    if (about.untold) compacted(about, false)
    say(about, "session.idle", { last_message: about.answer.text })
  }

  const events = {
    "session.created"(info) {
      if (!sessions.has(info.sessionID)) opened(info.sessionID, info, true)
    },
    "session.deleted"({ sessionID }) {
      say(session(sessionID), "session.deleted")
      sessions.delete(sessionID)
    },
    // Mostly a hook announced it; the event can come after the next request.
    "session.compaction.ended"({ sessionID, text }) {
      const about = session(sessionID)
      if (typeof text === "string") about.summary = text.slice(0, TEXT_CHARS)
      if (about.announced > 0) about.announced -= 1
      else shrunk(about)
    },
    "session.compaction.failed"({ sessionID }) {
      Object.assign(session(sessionID), { compacting: false, announced: 0 })
    },
    "session.text.ended"({ sessionID, text }) {
      session(sessionID).answer.text = text.slice(0, TEXT_CHARS)
    },
    "session.execution.succeeded": over,
    "session.execution.interrupted": over,
    "session.execution.failed"({ sessionID, error }) {
      say(session(sessionID), "session.error", { error: { data: shortened(error) } })
    },
    "permission.asked": (data) => asked(data.sessionID, data),
    "question.asked": ({ sessionID, questions }) => questioned(sessionID, questions),
    "form.created"({ form }) {
      if (sessions.has(form.sessionID)) questioned(form.sessionID, [{ question: form.title }])
    },
    "todo.updated"({ sessionID, todos }) {
      say(session(sessionID), "todo.updated", { todos: shortened(todos) })
    },
  }

  const hooks = {
    prompt: async ({ sessionID, messageID, prompt }) => {
      const about = await found(sessionID)
      if (about.untold) compacted(about, false)
      const resumed = about.resumed && !about.heard
      about.heard = true
      const said = { prompt: prompt.text.slice(0, TEXT_CHARS), resumed, message_id: messageID }
      const reply = await say(about, "chat.message", said)
      if (reply && !resumed && !about.parent) about.covered = true
      if (reply?.context) about.notes.push(reply.context)
    },
    compaction: async ({ sessionID }) => {
      const about = await found(sessionID)
      about.announced += 1
      about.compacting = true
      await say(about, "session.compacting", { transforms: true }, COMPACTION_WAIT_MS)
    },
    // What is put into a request stays out of the conversation, so it is put in again.
    context: async ({ sessionID, system }) => {
      const about = await found(sessionID)
      if (about.compacting) shrunk(about)
      if (about.untold && !about.covered) {
        const reply = await compacted(about, true)
        if (reply) about.covered = true
        if (reply?.context) about.notes.push(reply.context)
      }
      for (const text of about.notes) system.push({ type: "text", text })
    },
  }

  const tools = {
    "execute.before": async ({ tool, sessionID, id, input }) => {
      const said = { tool, call_id: id, args: shortened(input) }
      const asking = say(await found(sessionID), "tool.execute.before", said)
      const reply = ARGS.includes("enforce-locks") ? await asking : null
      if (reply?.deny) throw new Refused(reply.deny)
    },
    "execute.after": async ({ tool, sessionID, id, input, status, result, error }) => {
      const about = await found(sessionID)
      const said = { tool, call_id: id, args: shortened(input) }
      const failure = { ...said, error: shortened(error?.message ?? error) }
      if (status === "error") say(about, "tool.failed", failure)
      else say(about, "tool.execute.after", { ...said, metadata: shortened(result?.metadata) })
    },
  }

  // A build that does not know a hook does without it.
  const register = quietly(async (domain, [name, hook]) => domain.hook(name, quietly(hook)))
  for (const hook of Object.entries(hooks)) await register(context.session, hook)
  for (const hook of Object.entries(tools)) await register(context.tool, hook)

  const ending = new AbortController()
  const listen = quietly(async () => {
    for await (const { type, data, location } of context.event.subscribe({ signal: ending.signal })) {
      const ours = !location?.directory || location.directory === directory
      if (ours && Object.hasOwn(events, type)) await quietly(events[type])(data)
    }
  })
  listen()

  return async () => {
    ending.abort()
    await close()
  }
}

// OpenCode 1 (from 1.18 on) calls the server, OpenCode 2 the setup of the default export.
export default { id: "fleetd", server, setup }
