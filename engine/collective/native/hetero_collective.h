/* hetero_collective.h: what the native libraries of communicators have in common: the operations, as numbers that ranks
 * exchange.
 *
 * Values of dtype are those of tensor.DType, of reduce those of collective.Reduce, of kind those of signature.Kind.
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

/* What all ranks must agree on before an operation. */
typedef struct hetero_signature {
  uint64_t number;                   /* of the operation, from 1 */
  int32_t kind, dtype, reduce, root; /* kind is a hetero_kind */
  int64_t elements;
  uint64_t parts; /* hash of the counts, 0 without counts */
} hetero_signature;

#endif
