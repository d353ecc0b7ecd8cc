/* hetero_nccl.h: the C ABI of libhetero_nccl.so: collectives among GPUs, by NCCL.
 *
 * The library exports one function, hetero_nccl_get_api, which returns a table of functions, or NULL for an unknown
 * version. The library opens NCCL at run time. Only one thread at a time may use a communicator. Any thread may call
 * stop, until close. No exception leaves the library.
 *
 * Values of the fields of a call: dtype has those of tensor.DType, reduce those of collective.Reduce, and kind those of
 * signature.Kind. */
#ifndef HETERO_NCCL_H
#define HETERO_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "../engine/collective/native/hetero_collective.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HETERO_NCCL_VERSION 3
#define HETERO_NCCL_TEXT 2048 /* bytes of a text, including its NUL */
#define HETERO_NCCL_ID_BYTES 128

typedef enum hetero_nccl_status {
  HETERO_NCCL_OK = 0,
  HETERO_NCCL_FAILED,  /* NCCL failed; the text gives its message */
  HETERO_NCCL_PEER,    /* NCCL reports a lost rank or network */
  HETERO_NCCL_TIMEOUT, /* the time limit expired */
  HETERO_NCCL_STOPPED, /* stop was called */
  HETERO_NCCL_UNAVAILABLE,
  HETERO_NCCL_DEVICE, /* the GPU failed; the text gives CUDA's message */
} hetero_nccl_status;

typedef struct hetero_nccl_facts {
  int32_t version,
      built_for; /* codes in the form of ncclGetVersion: of the opened library, and of the header at compile time */
  char path[HETERO_NCCL_TEXT];
} hetero_nccl_facts;

typedef struct hetero_nccl_options {
  int32_t rank, size;
  int32_t device;             /* CUDA's index of the GPU */
  int32_t min_ctas, max_ctas; /* bounds of the thread blocks of an operation; 0: NCCL's choice */
  uint8_t id[HETERO_NCCL_ID_BYTES];
} hetero_nccl_options;

typedef struct hetero_nccl_call {
  int32_t kind, dtype, reduce, root;
  int64_t elements;
  int64_t timeout_ns; /* time limit; 0: no limit */
  char text[HETERO_NCCL_TEXT];
} hetero_nccl_call;

typedef struct hetero_nccl_comm hetero_nccl_comm;

typedef struct hetero_nccl_api {
  uint32_t version; /* HETERO_NCCL_VERSION */

  /* Opens NCCL, once per process; NCCL then reads its environment. Returns a status. */
  int32_t (*library)(hetero_nccl_facts *, char *error);
  /* Returns the PCI bus id of a GPU, which is unique in a machine. bus_id has 32 bytes. */
  int32_t (*bus_id)(int32_t device, char *bus_id, char *error);
  /* Creates the id of a communicator. One rank calls it, and sends the id to all others. */
  int32_t (*unique_id)(uint8_t *id, char *error);

  int32_t (*create)(const hetero_nccl_options *, hetero_nccl_comm **, char *error);
  /* Joins the other ranks. Returns when all have joined, when the time limit expires, or when stop is called. After any
   * status other than OK, the caller may only call close. */
  int32_t (*connect)(hetero_nccl_comm *, int64_t timeout_ns, char *error);
  /* Performs one operation on the communicator's stream, and waits for it without blocking the GPU. buffer is device
   * memory whose content is ready. counts has the number of elements of each rank's part, for ALL_GATHER and
   * REDUCE_SCATTER. On return, nothing accesses the buffer. After any status other than OK, the caller may only call
   * close. */
  int32_t (*run)(hetero_nccl_comm *, hetero_nccl_call *, void *buffer, const int64_t *counts);
  /* Ends the current connect or run, or the next one. */
  void (*stop)(hetero_nccl_comm *);
  /* orderly states that all operations that this rank began have ended without error. The call returns even if NCCL or
   * the GPU hangs: the status is then FAILED, and error names the resources that are leaked. */
  int32_t (*close)(hetero_nccl_comm *, int32_t orderly, char *error);
} hetero_nccl_api;

const hetero_nccl_api *hetero_nccl_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif
#endif
