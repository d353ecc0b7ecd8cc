// Decides whether a page must load its run.

// Freshness compares the version of a run on the server with the version that the page shows. Versions grow while there is a connection.
export class Freshness {
  private announced = 0 // on the server; 0: unknown
  private loaded = -1 // on the page; 0: unknown, -1: the page has not tried to load
  private losses = 0 // of the connection

  announce(version: number): void {
    this.announced = version
  }

  // lose forgets all versions, because a restarted server counts from the beginning. The next version therefore counts
  // as new.
  lose(): void {
    this.losses++
    this.announced = this.loaded = 0
  }

  get stale(): boolean {
    return this.announced > this.loaded
  }

  // begin returns a function. The page must call this function with the version that it has loaded, or with null if it
  // could not load.
  begin(): (version: number | null) => void {
    const losses = this.losses, announced = this.announced
    // After a failure, the next change leads to the next attempt.
    return version => { if (losses === this.losses) this.loaded = version ?? announced }
  }
}
