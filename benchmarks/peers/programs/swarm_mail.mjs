// swarm-mail as its documentation shows it: getSwarmMailLibSQL(project), in this process.
// A request per line of stdin, samples or facts per line of stdout, as programs/serving.py says.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { closeAllSwarmMailLibSQL, getSwarmMailLibSQL } from "swarm-mail";

const SENDER = "dispatch";
const READER = "specialist-2";
let mail, project;

async function timed(operation, runs) {
  const times = [];
  for (let number = 0; number < runs; number++) {
    const begun = performance.now();
    await operation(number);
    times.push(performance.now() - begun);
  }
  return times;
}

function appended(data) {
  return mail.appendEvent({
    type: "task_progress",
    project_key: project,
    timestamp: Date.now(),
    agent_name: SENDER,
    bead_id: "sortie-1",
    progress_percent: 10,
    message: JSON.stringify(data),
  });
}

async function passLetter(letter) {
  await mail.sendMessage(project, SENDER, [READER], letter.subject, letter.body);
  const inbox = await mail.getInbox(project, READER, { unreadOnly: true, includeBodies: true });
  if (inbox.length !== 1) throw new Error(`${inbox.length} letters are unread, not 1`);
  for (const { id } of inbox) {
    await mail.markMessageAsRead(project, id, READER);
    await mail.acknowledgeMessage(project, id, READER);
  }
}

async function takeTurns(file) {
  await mail.reserveFiles(project, SENDER, [file], { exclusive: true, ttlSeconds: 600 });
  await mail.releaseFiles(project, SENDER, { paths: [file] });
}

const works = {
  event: ({ runs, data }) => timed(() => appended(data), runs),
  lock: ({ runs, file }) => timed(() => takeTurns(file), runs),
  mail: ({ runs, letter }) => timed(() => passLetter(letter), runs),
  writers: ({ runs, writers, each, data }) => {
    const several = async () => {
      for (let number = 0; number < each; number++) await appended(data);
    };
    return timed(() => Promise.all(Array.from({ length: writers }, several)), runs);
  },
};

async function begin({ directory }) {
  process.env.SWARM_DB_PATH = `${directory}/swarm.db`;
  project = directory;
  mail = await getSwarmMailLibSQL(project);
  for (const agent of [SENDER, READER]) await mail.registerAgent(project, agent);
  const database = await mail.getDatabase();
  const ask = async (sql) => Object.values((await database.query(sql)).rows[0])[0];
  const manifest = new URL("node_modules/swarm-mail/package.json", import.meta.url);
  return {
    version: JSON.parse(readFileSync(manifest, "utf8")).version,
    way: "in process",
    journal_mode: await ask("PRAGMA journal_mode"),
    synchronous: ["OFF", "NORMAL", "FULL", "EXTRA"][await ask("PRAGMA synchronous")],
    sqlite: await ask("SELECT sqlite_version()"),
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { work, ...asked } = JSON.parse(line);
  const done = work === "open" ? await begin(asked) : { times_ms: await works[work](asked) };
  process.stdout.write(`${JSON.stringify(done)}\n`);
}
await closeAllSwarmMailLibSQL();
