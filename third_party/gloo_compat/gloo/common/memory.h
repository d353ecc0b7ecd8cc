// memory.h replaces Gloo's header of the same name. gloo/transport/tcp/pair.h includes this header, but Debian's
// libgloo-dev does not contain it. This file is last on the include path, so Gloo's own header is used if it is
// installed.
//
// pair.h uses the templates in declarations of members and functions. hetero-train reads only members that precede
// these, and does not call these functions.
#pragma once

#include <memory>

namespace gloo {

template <class T> class NonOwningPtr;

template <class T> class WeakNonOwningPtr { std::weak_ptr<T> pointer_; };

} // namespace gloo
