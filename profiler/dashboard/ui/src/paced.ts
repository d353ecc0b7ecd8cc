// Paced limits loads that cost the server much time. It runs one load at a time. The pause before the next load depends
// on the duration of the last load.

const restFactor = 10 // shortest pause after a load, as a multiple of its duration

export class Paced {
  private running: AbortController | null = null
  private wanted = false
  private due = -Infinity // time of the next load, ms

  // least is the shortest pause in ms.
  constructor(private readonly load: (signal: AbortSignal) => Promise<void>, private readonly least: number) {}

  // want requests a load, because there are new data. The load begins immediately, or in a later call of tick.
  want(): void {
    this.wanted = true
    this.tick()
  }

  // tick begins a requested load if no load is running and the pause is over.
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
