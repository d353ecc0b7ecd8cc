/* hetero_nccl.h: the C ABI of libhetero_nccl.so: collectives among GPUs, by NCCL.
 *
 * The library exports one function, hetero_nccl_get_api, which returns a table of functions, or NULL where it does not know the
 * version asked for. NCCL itself is opened at run time. A communicator is used by one thread at a time, but for stop, which any
 * thread may call until close. No exception leaves the library.
 *
 * Values of dtype are those of tensor.DType, of reduce those of collective.Reduce, of kind those of signature.Kind.
 */
#ifndef HETERO_NCCL_H
#define HETERO_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "../engine/collective/native/hetero_collective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HETERO_NCCL_VERSION 2
#define HETERO_NCCL_TEXT 2048 /* bytes of a text, its NUL included */
#define HETERO_NCCL_ID_BYTES 128

typedef enum hetero_nccl_status {
  HETERO_NCCL_OK = 0,
  HETERO_NCCL_FAILED,  /* NCCL says why */
  HETERO_NCCL_PEER,    /* NCCL says that another rank is gone, or the network is */
  HETERO_NCCL_TIMEOUT, /* the time is over */
  HETERO_NCCL_STOPPED, /* stop was called */
  HETERO_NCCL_UNAVAILABLE,
  HETERO_NCCL_DEVICE, /* the GPU has failed, CUDA says how */
} hetero_nccl_status;

typedef struct hetero_nccl_facts {
  int32_t version,
      built_for; /* of NCCL as ncclGetVersion codes it: what was opened; whose header this library was compiled with */
  char path[HETERO_NCCL_TEXT];
} hetero_nccl_facts;

typedef struct hetero_nccl_options {
  int32_t rank, size;
  int32_t device;             /* index, as CUDA counts */
  int32_t min_ctas, max_ctas; /* blocks that an operation takes of the GPU; 0: NCCL's choice */
  uint8_t id[HETERO_NCCL_ID_BYTES];
} hetero_nccl_options;

typedef struct hetero_nccl_call {
  int32_t kind, dtype, reduce, root;
  int64_t elements;
  int64_t timeout_ns; /* from now; 0: none */
  int64_t busy_ns;    /* filled: from the launch to the end, as the GPU measures it; 0 where it does not tell */
  char text[HETERO_NCCL_TEXT];
} hetero_nccl_call;

typedef struct hetero_nccl_comm hetero_nccl_comm;

typedef struct hetero_nccl_api {
  uint32_t version; /* HETERO_NCCL_VERSION */

  /* Opens NCCL, once in a process: NCCL reads its environment then. Returns a status. */
  int32_t (*library)(hetero_nccl_facts *, char *error);
  /* The PCI bus id of a GPU: what tells GPUs of one machine apart. bus_id has 32 bytes. */
  int32_t (*bus_id)(int32_t device, char *bus_id, char *error);
  /* What all ranks of a communicator are to have; made by one of them. */
  int32_t (*unique_id)(uint8_t *id, char *error);

  int32_t (*create)(const hetero_nccl_options *, hetero_nccl_comm **, char *error);
  /* Joins the other ranks: returns when all have come, the time is over or stop was called. After any status but OK only close is left. */
  int32_t (*connect)(hetero_nccl_comm *, int64_t timeout_ns, char *error);
  /* Performs one operation on the communicator's own stream, and waits for it without holding the GPU up. buffer is device memory whose
   * content is ready. counts: elements of each rank's part, for ALL_GATHER and REDUCE_SCATTER. After any status but OK only close
   * is left. Either way nothing touches the buffer any more. */
  int32_t (*run)(hetero_nccl_comm *, hetero_nccl_call *, void *buffer, const int64_t *counts);
  /* Ends connect or run under way, or the next. */
  void (*stop)(hetero_nccl_comm *);
  /* orderly: all that this rank began has ended well. Comes back also where NCCL or the GPU does not: FAILED, and error says what is left. */
  int32_t (*close)(hetero_nccl_comm *, int32_t orderly, char *error);
} hetero_nccl_api;

const hetero_nccl_api *hetero_nccl_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
