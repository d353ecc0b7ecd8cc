/* hetero_shm.h: the C ABI of libhetero_shm.so: collectives among processes of one host, through shared memory.
 *
 * The library exports one function, hetero_shm_get_api, which returns a table of functions, or NULL for an unknown
 * version. Only one thread at a time may use a group. Any thread may call stop and the functions for states, until
 * detach. No exception leaves the library, and it installs no signal handler.
 *
 * hetero_collective.h defines the operations.
 */
#ifndef HETERO_SHM_H
#define HETERO_SHM_H

#include <stddef.h>
#include <stdint.h>

#include "../native/hetero_collective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HETERO_SHM_VERSION 1
#define HETERO_SHM_TEXT 512 /* bytes of a text, including its NUL */
#define HETERO_SHM_NAME 64

typedef enum hetero_shm_state {
  HETERO_SHM_ALIVE = 0,
  HETERO_SHM_LEFT,      /* left in order, with no operation pending */
  HETERO_SHM_DEAD,      /* the rank's process has ended; another rank sets this state */
  HETERO_SHM_GAVE_UP,   /* aborted; the text gives the reason */
  HETERO_SHM_TIMED_OUT, /* exceeded a time limit; the text names the operation */
} hetero_shm_state;

typedef enum hetero_shm_status {
  HETERO_SHM_OK = 0,
  HETERO_SHM_PEER,     /* call.rank is gone */
  HETERO_SHM_TIMEOUT,  /* the time limit expired */
  HETERO_SHM_MISMATCH, /* call.rank entered another operation, call.theirs */
  HETERO_SHM_STOPPED,  /* stop was called on this rank */
} hetero_shm_status;

/* One operation and its outcome. */
typedef struct hetero_shm_call {
  hetero_signature op; /* run sets parts */
  int64_t timeout_ns;  /* time limit, from the call of run; negative: no limit */
  char name[HETERO_SHM_NAME];
  int32_t rank;            /* set for PEER and MISMATCH */
  hetero_signature theirs; /* set for MISMATCH: the operation that call.rank entered */
} hetero_shm_call;

typedef struct hetero_shm_progress {
  uint64_t entered, finished;
  int64_t steps; /* steps within operations, relative to this rank; negative: behind this rank */
  char name[HETERO_SHM_NAME];
} hetero_shm_progress;

typedef struct hetero_shm_group hetero_shm_group; /* one rank's view */

typedef struct hetero_shm_api {
  uint32_t version;         /* HETERO_SHM_VERSION */
  const char *(*isa)(void); /* instruction set in use: "avx512", "avx2", "generic" */

  /* Creates the memory of a group: an unnamed file, which the last user frees. Returns 0, or an errno and the text. */
  int32_t (*create)(int32_t size, int64_t stage_bytes, int32_t *fd, char *error);
  /* Maps the memory for one rank. The file may be closed afterwards. */
  int32_t (*attach)(int32_t fd, int32_t rank, int32_t size, hetero_shm_group **, char *error);
  void (*detach)(hetero_shm_group *);

  /* Performs one operation. counts has the number of elements of each rank's part, for ALL_GATHER and REDUCE_SCATTER.
   * Returns a status. */
  int32_t (*run)(hetero_shm_group *, hetero_shm_call *, void *buffer, const int64_t *counts);
  /* Ends the current run, or the next one, on this rank only. */
  void (*stop)(hetero_shm_group *);
  /* Sets the state of a rank that is alive. text is for GAVE_UP and TIMED_OUT, which a rank sets only for itself. DEAD,
   * GAVE_UP and TIMED_OUT end the group, and thus the run of every rank. */
  void (*set_state)(hetero_shm_group *, int32_t rank, int32_t state, const char *text);
  /* Returns the state of a rank and its text. */
  int32_t (*get_state)(hetero_shm_group *, int32_t rank, char *text);
  /* Returns the rank that ended the group, or -1. */
  int32_t (*failed)(hetero_shm_group *);
  void (*progress)(hetero_shm_group *, int32_t rank, hetero_shm_progress *);
} hetero_shm_api;

const hetero_shm_api *hetero_shm_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
