/* hetero_collective.h: common declarations of the native libraries of communicators: the operations, as numbers that
 * ranks exchange.
 *
 * dtype has the values of tensor.DType, reduce those of collective.Reduce, kind those of signature.Kind.
 */
#ifndef HETERO_COLLECTIVE_H
#define HETERO_COLLECTIVE_H

#include <stdint.h>

typedef enum hetero_kind {
  HETERO_ALL_REDUCE = 1,
  HETERO_BROADCAST,
  HETERO_ALL_GATHER,
  HETERO_REDUCE_SCATTER,
  HETERO_BARRIER,
} hetero_kind;

/* The properties of an operation on which all ranks must agree. */
typedef struct hetero_signature {
  uint64_t number;                   /* position of the operation in the communicator's sequence, from 1 */
  int32_t kind, dtype, reduce, root; /* kind is a hetero_kind */
  int64_t elements;
  uint64_t parts; /* hash of the counts, or 0 if there are none */
} hetero_signature;

#endif
