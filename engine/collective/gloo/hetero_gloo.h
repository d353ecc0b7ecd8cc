/* hetero_gloo.h: the C ABI of libhetero_gloo.so: collectives among processes of several hosts, over Gloo's connections.
 *
 * The library exports one function, hetero_gloo_get_api, which returns a table of functions, or NULL for an unknown
 * version. Only one thread at a time may use a context. Any thread may call stop and disconnect, until close. No
 * exception leaves the library. Its threads block all signals.
 *
 * hetero_collective.h defines the operations.
 */
#ifndef HETERO_GLOO_H
#define HETERO_GLOO_H

#include <stddef.h>
#include <stdint.h>

#include "../native/hetero_collective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HETERO_GLOO_VERSION 5
#define HETERO_GLOO_TEXT 512 /* bytes of a text, including its NUL */

typedef enum hetero_gloo_status {
  HETERO_GLOO_OK = 0,
  HETERO_GLOO_PEER,     /* the connection to call.rank broke; call.text is the cause */
  HETERO_GLOO_TIMEOUT,  /* the time limit expired; run sets missing */
  HETERO_GLOO_MISMATCH, /* call.rank entered another operation, call.theirs */
  HETERO_GLOO_STOPPED,  /* stop was called */
} hetero_gloo_status;

/* One operation and its outcome. */
typedef struct hetero_gloo_call {
  hetero_signature op; /* run sets parts */
  int64_t timeout_ms;  /* time limit, without the time in which this process was stopped; 0: no limit */
  int32_t rank;
  hetero_signature theirs;
  char text[HETERO_GLOO_TEXT];
} hetero_gloo_call;

typedef struct hetero_gloo_context hetero_gloo_context;

typedef struct hetero_gloo_api {
  uint32_t version;                 /* HETERO_GLOO_VERSION */
  const char *(*description)(void); /* "0.5.0" */

  /* Creates a context. Returns 0, or 1 and the text. */
  int32_t (*open)(int32_t rank, int32_t size, hetero_gloo_context **, char *error);
  /* Gives Gloo the connected socket to another rank. Call it once for each other rank, before the first run. The
   * context then owns the socket, even on failure. Returns 0, or 1 and the text. */
  int32_t (*adopt)(hetero_gloo_context *, int32_t rank, int32_t socket, char *error);
  /* Sets how ranks enter an operation:
   *
   *   - radix 0: each rank sends a message to all others.
   *   - radix k >= 2: messages pass along a tree in which a rank has up to k-1 children per level.
   *
   * If no rank contributes more than part_bytes, the operation is complete after the entry. Call shape before the first
   * run. All ranks must call it between the same runs, with the same values. Results do not depend on the values.
   * Returns 0, or 1 and the text. */
  int32_t (*shape)(hetero_gloo_context *, int32_t radix, int64_t part_bytes, char *error);

  /* Performs one operation. counts has the number of elements of each rank's part, for ALL_GATHER and REDUCE_SCATTER.
   *
   * missing has one entry per rank. After TIMEOUT with radix 0, it is 1 for the ranks that have not entered the
   * operation. With a tree, it is 1 for the neighbour for which this rank waited, which may itself have waited.
   *
   * Returns a status. If it is not OK, the caller may only call disconnect and close. After the return, nothing
   * accesses the buffer. */
  int32_t (*run)(hetero_gloo_context *, hetero_gloo_call *, void *buffer, const int64_t *counts, uint8_t *missing);
  /* Ends the current run, or the next one. */
  void (*stop)(hetero_gloo_context *);
  /* Closes the connections after a failed run. Each takes some 10 ms. The other ranks then also fail, so the caller
   * must first notify them of the reason. */
  void (*disconnect)(hetero_gloo_context *);
  void (*close)(hetero_gloo_context *);
} hetero_gloo_api;

const hetero_gloo_api *hetero_gloo_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
