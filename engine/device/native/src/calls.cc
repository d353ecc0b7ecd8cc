// calls.cc
#include "calls.h"

#include "requests.h"

namespace hetero {

ht_kernel *compiled(int32_t op, const void *params, size_t params_bytes, const ht_spec *in, int32_t num_in,
                    const ht_spec *out, int32_t num_out, int threads, const std::function<void()> &use) {
  const std::string name = op_name(op);
  try {
    const Request r = checked_request(op, params, params_bytes, in, num_in, out, num_out, threads);
    use();
    auto k = std::make_unique<ht_kernel>(ht_kernel{r.op, factory_of(r.op)(r)});
    check_kernel(*k->impl, r);
    return k.release();
  } catch (const Invalid &e) {
    throw Invalid(name + ": " + e.what());
  } catch (const Unsupported &e) {
    throw Unsupported(name + ": " + e.what());
  } catch (const OutOfMemory &e) {
    throw OutOfMemory(name + ": " + e.what());
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &e) {
    throw std::runtime_error(name + ": " + e.what());
  }
}

void described(const ht_kernel *kernel, ht_kernel_desc *desc) {
  const Kernel &k = *kernel->impl;
  *desc = {k.in.data(), k.out.data(),     static_cast<int32_t>(k.in.size()),     static_cast<int32_t>(k.out.size()),
           k.workspace, k.inplace.data(), static_cast<int32_t>(k.inplace.size())};
}

} // namespace hetero
