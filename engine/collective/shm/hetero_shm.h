/* hetero_shm.h: the C ABI of libhetero_shm.so: collectives among processes of one host, through shared memory.
 *
 * The library exports one function, hetero_shm_get_api, which returns a table of functions, or NULL where it does not
 * know the version asked for. A group is used by one thread at a time, but for stop and the reading and setting of
 * states, which any thread may call until detach. No exception leaves the library, no signal handler is installed.
 *
 * Operations are those of hetero_collective.h.
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
#define HETERO_SHM_TEXT 512 /* bytes of a text, its NUL included */
#define HETERO_SHM_NAME 64

typedef enum hetero_shm_state {
  HETERO_SHM_ALIVE = 0,
  HETERO_SHM_LEFT,      /* in order, with nothing left to do */
  HETERO_SHM_DEAD,      /* its process has ended; another rank says so */
  HETERO_SHM_GAVE_UP,   /* it says why */
  HETERO_SHM_TIMED_OUT, /* it waited too long; it says for what */
} hetero_shm_state;

typedef enum hetero_shm_status {
  HETERO_SHM_OK = 0,
  HETERO_SHM_PEER,     /* call.rank is no longer there */
  HETERO_SHM_TIMEOUT,  /* the time is over */
  HETERO_SHM_MISMATCH, /* call.rank does something else: call.theirs */
  HETERO_SHM_STOPPED,  /* stop was called here */
} hetero_shm_status;

/* One operation, and what became of it. */
typedef struct hetero_shm_call {
  hetero_signature op; /* parts is filled by run */
  int64_t timeout_ns;  /* from now; negative: none */
  char name[HETERO_SHM_NAME];
  int32_t rank;            /* PEER, MISMATCH */
  hetero_signature theirs; /* MISMATCH */
} hetero_shm_call;

typedef struct hetero_shm_progress {
  uint64_t entered, finished;
  int64_t steps; /* within operations, relative to the rank that asks: negative is behind */
  char name[HETERO_SHM_NAME];
} hetero_shm_progress;

typedef struct hetero_shm_group hetero_shm_group; /* one rank's view */

typedef struct hetero_shm_api {
  uint32_t version;         /* HETERO_SHM_VERSION */
  const char *(*isa)(void); /* instruction set in use: "avx512", "avx2", "generic" */

  /* Makes the memory of a group: a file without a name, which vanishes with its last user. Returns 0, or an errno and
   * the text. */
  int32_t (*create)(int32_t size, int64_t stage_bytes, int32_t *fd, char *error);
  /* Maps it for one rank. The file may be closed afterwards. */
  int32_t (*attach)(int32_t fd, int32_t rank, int32_t size, hetero_shm_group **, char *error);
  void (*detach)(hetero_shm_group *);

  /* Performs one operation. counts: elements of each rank's part, for ALL_GATHER and REDUCE_SCATTER. Returns a
   * status. */
  int32_t (*run)(hetero_shm_group *, hetero_shm_call *, void *buffer, const int64_t *counts);
  /* Ends a run under way, or the next, on this rank alone. */
  void (*stop)(hetero_shm_group *);
  /* Sets the state of a rank that is alive; text is for those that give up or time out, of the rank itself. A state
   * after LEFT ends the group: every rank's run. */
  void (*set_state)(hetero_shm_group *, int32_t rank, int32_t state, const char *text);
  /* The state of a rank, and its text. */
  int32_t (*get_state)(hetero_shm_group *, int32_t rank, char *text);
  /* The rank that ended the group, -1 if none did. */
  int32_t (*failed)(hetero_shm_group *);
  void (*progress)(hetero_shm_group *, int32_t rank, hetero_shm_progress *);
} hetero_shm_api;

const hetero_shm_api *hetero_shm_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
