// Be a producer or a worker of BullMQ on Node; the producer follows the orders that side.py describes.
const fs = require('fs')
const readline = require('readline')
const { createRequire } = require('module')

const installed = createRequire(`${process.env.BENCH_NODE}/`)
const { Queue, Worker } = installed('bullmq')

const LINE = 21
const stamps = process.env.BENCH_STAMPS
const at = new URL(process.env.BENCH_URL)
const connection = { host: at.hostname, port: Number(at.port), maxRetriesPerRequest: null }
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

function work() {
  let file
  new Worker('bench', async (job) => {
    const now = process.hrtime.bigint()
    file ??= fs.openSync(stamps, 'a')
    fs.writeSync(file, `${String(now - BigInt(job.data.p.split('.')[0])).padStart(20, '0')}\n`)
  }, { connection })
}

function stamped() {
  const found = fs.statSync(stamps, { throwIfNoEntry: false })
  return found ? Math.floor(found.size / LINE) : 0
}

async function allStarted(count) {
  const until = Date.now() + 15000
  while (stamped() < count) {
    if (Date.now() > until) throw new Error(`${stamped()} of ${count} jobs have started`)
    await sleep(5)
  }
}

async function produce() {
  const queue = new Queue('bench', { connection })
  await queue.waitUntilReady()
  let sent = 0
  console.log('ready')
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [count, least, most] = line.split(' ').map(Number)
    for (let n = 0; n < count; n++) {
      await sleep(1000 * (least + Math.random() * (most - least)))
      await allStarted(sent)
      await queue.add('note', { p: `${process.hrtime.bigint()}.`.padEnd(100, 'x') }, { removeOnComplete: true })
      sent++
    }
    await allStarted(sent)
    console.log('done')
  }
  process.exit(0)
}

process.argv[2] === 'work' ? work() : produce()
