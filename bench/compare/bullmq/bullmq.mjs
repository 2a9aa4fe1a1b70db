// BullMQ as its documentation shows it: node bullmq.mjs REDIS_PORT ROLE ARGUMENT
//   fill N       add N jobs, 64 at a time
//   bulk N       add N jobs by addBulk, 5,000 at a time
//   pause, resume
//   work JSON    {url, concurrency, limiter}: a worker, which posts to url, or does nothing
// It prints one line when it is done, or when its worker is ready.
import { readFileSync } from 'node:fs'
import { Queue, Worker } from 'bullmq'

const [port, role, argument] = process.argv.slice(2)
// Not kept: what has ended. Else its memory would count as that of jobs that wait.
const defaultJobOptions = { removeOnComplete: true, removeOnFail: true }
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null }
const queue = new Queue('compare', { connection, defaultJobOptions })
const body = { text: 'x'.repeat(100) }

async function add (n, atOnce, each) {
  let next = 0
  const begin = performance.now()
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (;;) {
      const from = next
      next += each
      if (from >= n) return
      if (each === 1) await queue.add('job', { number: from, ...body })
      else {
        await queue.addBulk(Array.from({ length: Math.min(each, n - from) }, (_, i) =>
          ({ name: 'job', data: { number: from + i, ...body } })))
      }
    }
  }))
  return (performance.now() - begin) / 1000
}

const roles = {
  version: async () => JSON.parse(
    readFileSync(new URL('node_modules/bullmq/package.json', import.meta.url))).version,
  fill: async () => add(Number(argument), 64, 1),
  bulk: async () => add(Number(argument), 2, 5000),
  pause: async () => { await queue.pause(); return 'paused' },
  resume: async () => { await queue.resume(); return 'resumed' },
  work: async () => {
    const { url, concurrency, limiter } = JSON.parse(argument)
    const worker = new Worker(queue.name, async job => {
      if (!url) return
      const answer = await fetch(url, { method: 'POST', body: JSON.stringify(job.data) })
      if (!answer.ok) throw new Error(`status ${answer.status}`)
    }, { connection, concurrency, limiter: limiter ?? undefined })
    worker.on('error', err => console.error(err))
    await worker.waitUntilReady()
    return 'ready'
  }
}
console.log(await roles[role]())
if (role !== 'work') await queue.close()
