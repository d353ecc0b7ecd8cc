// memory.h: stands in for Gloo's header of this name, which Debian's libgloo-dev leaves out although gloo/transport/tcp/pair.h includes it. It comes last on
// the include path, so that Gloo's own is taken where it is installed.
//
// pair.h uses the templates in members behind those that hetero-train reads, and in declarations of functions that it does not call.
#pragma once

#include <memory>

namespace gloo {

template <class T> class NonOwningPtr;

template <class T> class WeakNonOwningPtr { std::weak_ptr<T> pointer_; };

} // namespace gloo
