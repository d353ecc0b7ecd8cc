// Paced calls a load that costs the server much time: one at a time, and the next one after a pause that follows from
// the time of the last one.

const restFactor = 10 // times the time of a load that follow it without another one

export class Paced {
  private running: AbortController | null = null
  private wanted = false
  private due = -Infinity // ms; of the next load

  // least is the shortest pause in ms.
  constructor(private readonly load: (signal: AbortSignal) => Promise<void>, private readonly least: number) {}

  // want asks for a load, because there are new data. It begins at once, or with a later call of tick.
  want(): void {
    this.wanted = true
    this.tick()
  }

  // tick begins a load that is wanted, if none is running and the pause is over.
  tick(): void {
    if (this.wanted && !this.running && Date.now() >= this.due) void this.begin()
  }

  // abort ends the load in progress. A later tick repeats it.
  abort(): void {
    if (!this.running) return
    this.running.abort()
    this.running = null
    this.wanted = true
  }

  private async begin(): Promise<void> {
    const control = new AbortController(), begun = Date.now()
    this.running = control
    this.wanted = false
    await this.load(control.signal)
    if (this.running !== control) return // aborted
    this.running = null
    this.due = Date.now() + Math.max(this.least, restFactor * (Date.now() - begun))
  }
}
