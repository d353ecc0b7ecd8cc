// cublaslt.cc: a fake cuBLASLt for tests. It checks its arguments as the library does, and computes with plain loops.
//
// It offers five algorithms with different requirements and fixed times, so that choices are deterministic:
//
//     1  operands at multiples of 16; fails when it runs
//     2  operands at multiples of 16; medium speed
//     3  as 2, but in four parts with workspace; fast
//     4  operands at any address; slow
//     5  as 3, but rounds the parts of sums to D's type; offered only if the caller permits it
//
// HETERO_FAKE_CUBLASLT changes its behaviour, one word:
//
//     none       no algorithm is offered
//     fail       every algorithm fails
//     sums       products that also sum B (the epilogue BGRADB) are slow
//     bias       products that also add a bias are slow
//     aligned    for products with an epilogue, only algorithms for aligned operands are offered
//
// HETERO_FAKE_CUBLASLT_VERSION is the reported version. HETERO_FAKE_CUBLASLT_LOG names a file that gets one line per
// product.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr uint64_t kDesc = 0xde5c, kLayout = 0x1a10, kPreference = 0x94ef; // first word of a descriptor

struct Desc {
  uint64_t magic;
  int32_t transpose[2];
  uint32_t epilogue;
  void *bias;
};
struct Layout {
  uint64_t magic;
  int32_t type;
  uint64_t rows, columns;
  int64_t ld;
};
struct Preference {
  uint64_t magic, workspace;
  uint32_t mask, align[4];
};
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

struct Known {
  int32_t id;
  uint32_t align; // required alignment of operands in bytes; 0: the size of an element
  uint32_t scheme;
  int32_t split;
  size_t workspace;
  int64_t ns; // modelled time, ns
};
constexpr Known kKnown[] = {
    {1, 16, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0, 1'000},
    {2, 16, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0, 3'000'000},
    {3, 16, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 4, 4096, 2'000'000},
    {4, 0, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0, 9'000'000},
    {5, 16, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4, 4096, 1'000'000},
};

bool told(const char *what) {
  const char *text = std::getenv("HETERO_FAKE_CUBLASLT");
  return text && std::string(text) == what;
}

template <class T, class Opaque> T *as(Opaque *p) { return reinterpret_cast<T *>(p->data); }

size_t size_of(int32_t type) { return type == CUDA_R_32F ? 4 : 2; }

float read(const void *p, int32_t type, uint64_t i) {
  switch (type) {
  case CUDA_R_32F: return static_cast<const float *>(p)[i];
  case CUDA_R_16F: return __half2float(static_cast<const __half *>(p)[i]);
  default: return __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i]);
  }
}

void write(void *p, int32_t type, uint64_t i, float v) {
  switch (type) {
  case CUDA_R_32F: static_cast<float *>(p)[i] = v; break;
  case CUDA_R_16F: static_cast<__half *>(p)[i] = __float2half_rn(v); break;
  default: static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(v);
  }
}

// A product whose descriptors match.
struct Product {
  Desc desc;
  Layout a, b, d;
  uint64_t m, n, k;

  cublasStatus_t take(cublasLtMatmulDesc_t desc_, cublasLtMatrixLayout_t a_, cublasLtMatrixLayout_t b_,
                      cublasLtMatrixLayout_t c_, cublasLtMatrixLayout_t d_) {
    desc = *as<Desc>(desc_);
    a = *as<Layout>(a_), b = *as<Layout>(b_), d = *as<Layout>(d_);
    const Layout &c = *as<Layout>(c_);
    if (desc.magic != kDesc || a.magic != kLayout || b.magic != kLayout || d.magic != kLayout || c.magic != kLayout)
      return CUBLAS_STATUS_INVALID_VALUE;
    m = desc.transpose[0] ? a.columns : a.rows;
    k = desc.transpose[0] ? a.rows : a.columns;
    n = desc.transpose[1] ? b.rows : b.columns;
    if (k != (desc.transpose[1] ? b.columns : b.rows) || d.rows != m || d.columns != n || c.rows != m ||
        c.columns != n || c.type != d.type)
      return CUBLAS_STATUS_INVALID_VALUE;
    const bool types = a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F);
    if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB && a.type == CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    return types ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }

  // Returns the factors of `count` rows of A, or of `count` columns of B: k consecutive values for each. In memory,
  // these values are `along` elements apart, and the rows of A or columns of B are `across` elements apart.
  std::vector<float> factors(const void *p, int32_t type, uint64_t count, uint64_t across, uint64_t along) const {
    std::vector<float> out(count * k);
    for (uint64_t i = 0; i < count; i++)
      for (uint64_t l = 0; l < k; l++) out[i * k + l] = read(p, type, i * across + l * along);
    return out;
  }

  void compute(const Known &how, const void *pa, const void *pb, void *pd, bool add) const {
    std::vector<float> before;
    for (uint64_t j = 0; j < n; j++) // overwrites operands that overlap D, so that tests detect them
      for (uint64_t i = 0; i < m; i++) {
        if (add) before.push_back(read(pd, d.type, j * uint64_t(d.ld) + i));
        write(pd, d.type, j * uint64_t(d.ld) + i, NAN);
      }
    const uint64_t a_ld = uint64_t(a.ld), b_ld = uint64_t(b.ld);
    const bool a_turned = desc.transpose[0], b_turned = desc.transpose[1];
    const std::vector<float> rows = factors(pa, a.type, m, a_turned ? a_ld : 1, a_turned ? 1 : a_ld),
                             columns = factors(pb, b.type, n, b_turned ? 1 : b_ld, b_turned ? b_ld : 1);
    const uint64_t part = (k + uint64_t(how.split) - 1) / uint64_t(how.split);
    // Number of sums that one loop computes. An addition waits for the previous addition of the same sum.
    constexpr uint64_t kAtOnce = 8;
    for (uint64_t j = 0; j < n; j++) {
      const float *column = columns.data() + j * k;
      for (uint64_t i = 0; i < m; i += kAtOnce) {
        const float *row[kAtOnce];
        float sum[kAtOnce] = {};
        for (uint64_t r = 0; r < kAtOnce; r++) row[r] = rows.data() + std::min(i + r, m - 1) * k;
        for (uint64_t from = 0; from < k; from += part) {
          float s[kAtOnce] = {};
          for (uint64_t l = from, end = std::min(from + part, k); l < end; l++)
            for (uint64_t r = 0; r < kAtOnce; r++) s[r] += row[r][l] * column[l];
          for (uint64_t r = 0; r < kAtOnce; r++) sum[r] += s[r];
        }
        for (uint64_t r = 0; r < kAtOnce && i + r < m; r++) {
          if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS) sum[r] += read(desc.bias, d.type, i + r);
          if (add) sum[r] += before[j * m + i + r];
          write(pd, d.type, j * uint64_t(d.ld) + i + r, sum[r]);
        }
      }
      if (desc.epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
      float sum = 0;
      for (uint64_t l = 0; l < k; l++) sum += column[l];
      write(desc.bias, d.type, j, sum);
    }
  }
};

bool at_multiple(const void *p, uint64_t of) { return reinterpret_cast<uintptr_t>(p) % of == 0; }

const Known *known(const cublasLtMatmulAlgo_t *algo) {
  for (const Known &k : kKnown)
    if (algo && algo->data[0] == uint64_t(k.id)) return &k;
  return nullptr;
}

void log_product(const Known &how) {
  const char *path = std::getenv("HETERO_FAKE_CUBLASLT_LOG");
  if (!path) return;
  if (std::FILE *f = std::fopen(path, "a")) {
    std::fprintf(f, "%d\n", how.id);
    std::fclose(f);
  }
}

// Stores the value if `size` is the size of T.
template <class T> cublasStatus_t keep(T &place, const void *value, size_t size) {
  if (!value || size != sizeof place) return CUBLAS_STATUS_INVALID_VALUE;
  return std::memcpy(&place, value, size), CUBLAS_STATUS_SUCCESS;
}

} // namespace

struct cublasLtContext {};

size_t cublasLtGetVersion() {
  const char *text = std::getenv("HETERO_FAKE_CUBLASLT_VERSION");
  return text ? size_t(std::atol(text)) : 130100;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  static cublasLtContext context;
  return *handle = &context, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  if (size != sizeof *desc) return CUBLAS_STATUS_ALLOC_FAILED;
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *as<Desc>(desc) = {kDesc, {0, 0}, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size) {
  Desc &d = *as<Desc>(desc);
  if (d.magic != kDesc) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: return keep(d.transpose[0], value, size);
  case CUBLASLT_MATMUL_DESC_TRANSB: return keep(d.transpose[1], value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE: return keep(d.epilogue, value, size);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return keep(d.bias, value, size);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
  if (size != sizeof *layout) return CUBLAS_STATUS_ALLOC_FAILED;
  if (rows == 0 || columns == 0 || ld < int64_t(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *as<Layout>(layout) = {kLayout, type, rows, columns, ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  if (size != sizeof *preference) return CUBLAS_STATUS_ALLOC_FAILED;
  *as<Preference>(preference) = {kPreference, 0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size) {
  Preference &p = *as<Preference>(preference);
  if (p.magic != kPreference) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return keep(p.workspace, value, size);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return keep(p.mask, value, size);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return keep(p.align[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *got) {
  *got = 0;
  Product x;
  const Preference &p = *as<Preference>(preference);
  if (!handle || p.magic != kPreference || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = x.take(desc, a, b, c, d)) return status;
  if (told("none")) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Known &how : kKnown) {
    bool fits = how.workspace <= p.workspace && (how.scheme == 0 || (p.mask & how.scheme)) && *got < wanted;
    for (uint32_t align : p.align) fits = fits && align >= how.align;
    if (told("aligned") && x.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) fits = fits && how.align > 0;
    if (!fits) continue;
    results[*got] = {{{uint64_t(how.id)}}, how.workspace, CUBLAS_STATUS_SUCCESS, 1, {}};
    ++*got;
  }
  return *got ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t size, size_t *written) {
  const Known *how = known(algo);
  const bool narrow =
      attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  if (!how || !value || size != (narrow ? 2 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  const int32_t v = attribute == CUBLASLT_ALGO_CONFIG_ID                 ? how->id
                    : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM       ? how->split
                    : attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? static_cast<int32_t>(how->scheme)
                                                                         : 0;
  std::memcpy(value, &v, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_size, cudaStream_t stream) {
  Product x;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = x.take(desc, a_layout, b_layout, c_layout, d_layout)) return status;
  const Known *how = known(algo);
  const float factor = *static_cast<const float *>(beta);
  if (!how || !a || !b || !c || !d || *static_cast<const float *>(alpha) != 1 ||
      (factor != 0 && (factor != 1 || c != d)) || workspace_size < how->workspace)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool biased = x.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  for (const auto &[p, type] :
       {std::pair{a, x.a.type}, {b, x.b.type}, {c, x.d.type}, {d, x.d.type}, {biased ? x.desc.bias : d, x.d.type}})
    if (!p || !at_multiple(p, how->align ? how->align : size_of(type))) return CUBLAS_STATUS_INVALID_VALUE;
  if (how->workspace && (!workspace || !at_multiple(workspace, 256))) return CUBLAS_STATUS_INVALID_VALUE;
  if (how->id == 1 || told("fail")) return CUBLAS_STATUS_EXECUTION_FAILED;
  const bool slow = (told("sums") && x.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB) ||
                    (told("bias") && x.desc.epilogue == CUBLASLT_EPILOGUE_BIAS);
  auto work = [=] {
    if (how->workspace) std::memset(workspace, 0xff, how->workspace); // overwrites operands that overlap the workspace
    x.compute(*how, a, b, d, factor == 1);
    log_product(*how);
  };
  if (stream && !stream->load("cuBLASLt " + std::to_string(how->id))) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (stream)
    stream->enqueue(slow ? how->ns + 50'000'000 : how->ns, work);
  else
    work();
  return CUBLAS_STATUS_SUCCESS;
}
