# hetero-train: `make` builds everything, `make help` lists the other targets.
#
# BUILD=<folder>, on the command line only: build there. The program is then <folder>/hetero-train, and the sources stay as
# they are: if they are read-only, downloads are in <folder>/third_party, otherwise in third_party.
#
# Variables, on the command line or in the environment:
#   SANITIZE=address|undefined   build the C++ code with this sanitizer, in build/<sanitizer>
#   ARCH=arm64                   build for arm64 with a cross compiler, in build/arm64 (docs/install.md)
#   CUDA=auto|on|off             auto: build the GPU device if a CUDA toolkit is found; on: fail if none is found; make dist
#                                builds it only with on, and gets the toolkit itself
#   CUDA_ARCHS=75;80;86;89;90    compute capabilities of the GPU code, ascending
#   WERROR=on                    C++ warnings are errors
#   OLD_GLIBC=on                 the libraries also run on glibc 2.28, for releases (third_party/glibc)
#   HETERO_ONEDNN_DIR=<prefix>   use the oneDNN v3 in this folder instead of the pinned one
#   HETERO_ONEDNN=off            build without oneDNN: with plain, slow kernels
#   PREFIX=/usr/local DESTDIR=   folders of make install
#   HETERO_INSTALL=off           install and download nothing; print the commands
#   REQUIRE=chromium,slurm       tests fail if these parts are missing (engine/needtest), next to cpu and shm
#   RECORD=FILE                  keep the results of tests in this file
#   PARTS="large hostile"        parts of make test-long: large hostile cluster kubernetes simulate fuzz arm64 machines container s3 docs

SANITIZE ?= off
CUDA     ?= auto
CUDA_ARCHS ?= 75;80;86;89;90
WERROR   ?= off
OLD_GLIBC ?= off
export HETERO_ONEDNN     ?= auto
export HETERO_ONEDNN_DIR ?=

ifeq ($(filter on off auto,$(CUDA)),)
$(error CUDA: got '$(CUDA)', want auto, on or off)
endif

ifneq ($(filter-out arm64,$(ARCH)),)
$(error ARCH: got '$(ARCH)', want arm64, or no value for this machine)
endif
# CROSS is the prefix of the cross compiler's names. It is empty if this machine has the requested architecture.
CROSS   := $(if $(ARCH),$(if $(filter aarch64 arm64,$(shell uname -m)),,aarch64-linux-gnu-))
# Paths may contain spaces, so recipes quote them, and no make function splits them. The Makefile ignores a variable
# BUILD from the environment, because another program may have set it.
ifeq ($(origin BUILD),command line)
PROGRAM := $(BUILD)/hetero-train
else
BUILD   := build$(if $(CROSS),/$(ARCH))
PROGRAM := $(if $(CROSS),$(BUILD),.)/hetero-train
endif
ifneq ($(SANITIZE),off)
override BUILD := $(BUILD)/$(SANITIZE)
endif
ifneq ($(CROSS),)
export CC := $(CROSS)gcc
export CXX := $(CROSS)g++
export GOARCH := $(ARCH)
export CGO_ENABLED := 1
# A cross build must not use libraries of this machine. third_party/arm64.sh downloads libraries for arm64.
CROSS_CMAKE := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_FIND_ROOT_PATH='$(CURDIR)/third_party/.arm64' \
	-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
CROSSED := build native configure install dist dist-check clean help
ifneq ($(filter-out $(CROSSED),$(MAKECMDGOALS)),)
$(error ARCH=$(ARCH): got the target $(filter-out $(CROSSED),$(MAKECMDGOALS)), want one of $(CROSSED): other targets run what they build)
endif
endif
BUILT    := $(if $(filter /%,$(BUILD)),,$(CURDIR)/)$(BUILD)
LIBS     := $(BUILT)/lib
FETCHED  := $(shell [ -w third_party ] && echo '$(CURDIR)/third_party' || echo '$(BUILT)/third_party')
VERSION  := $(or $(shell sh third_party/version.sh),$(error third_party/version.sh printed no version: want the file VERSION and a shell))
CORES    := $(shell nproc 2>/dev/null || echo 2)
# The scripts of third_party need these folders.
PLACES   := HETERO_FETCHED='$(FETCHED)' HETERO_BUILD='$(BUILT)'
# deps.sh installs tools below FETCHED.
export PATH := $(FETCHED)/.tools/go/bin:$(FETCHED)/.tools/cmake/bin:$(PATH)
# By default, Go stores its caches below HOME. In services and containers, HOME may be unset or read-only.
ifeq ($(shell [ -w "$$HOME" ] && echo yes),)
export GOPATH ?= $(FETCHED)/.go
export GOCACHE ?= $(FETCHED)/.go/cache
endif
# By default, Go calls the C compiler by the name gcc. A machine may have only clang, as cc.
ifeq ($(origin CC),default)
ifeq ($(shell command -v gcc 2>/dev/null),)
export CC := cc
endif
endif

# The Makefile passes the version to the linker. Go would ask git for it, and git refuses a clone that belongs to
# another user (a container's bind mount).
# -z lazy: go-nvml does not link NVIDIA's library, and resolves its functions at their first call. With -z now, the
# default of some C compilers, the program would not start without this library.
LAZY     := -extldflags=-Wl,-z,lazy
GO_BUILD := go build -buildvcs=false -ldflags '$(LAZY) -X github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version.number=$(VERSION)'
# go-nvml binds every function of NVIDIA's library, including deprecated ones.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# If the GPU device is built, the Go code that queries the driver is built, too. The go command then needs the
# environment in cuda.env. With or without this code, the program starts on machines without a driver.
CUDA_ENV := [ ! -f '$(BUILT)/cuda.env' ] || . '$(BUILT)/cuda.env';

# Tests use the libraries of this build. If the CPU library is missing, a test that needs it fails instead of skipping.
# -count=1: Go's test cache does not notice a rebuilt C++ library.
# GOGC: the heaps of tests are small, so with Go's default a fifth of their CPU time is garbage collection.
TEST_ENV := GOGC=400 HETERO_LIB_DIR='$(LIBS)' HETERO_REQUIRE='cpu,shm,$(REQUIRE)'
# Linking without debug symbols takes a third less CPU time, and Go prints the same tracebacks. Builds with the address
# sanitizer keep the symbols, because its reports use them.
STRIP    := $(if $(filter address,$(SANITIZE)),,-s -w )
# Tests run without go vet, because `make lint` vets all packages. .ci/tests.py prints the output of go test and counts
# the skipped tests by reason. RECORD=FILE keeps the results.
# Many tests wait for other processes, so go test runs more of them than there are cores. It tests two packages more
# than cores at a time, and in a package two tests more than cores.
GO_TEST  := .ci/tests.py $(if $(RECORD),--record '$(RECORD)') go test -count=1 -vet=off -timeout 60m -p $(shell expr $(CORES) + 2) -parallel $(shell expr $(CORES) + 2) -ldflags='$(STRIP)$(LAZY)'
# The listed packages take longest, so they start first, in this order.
ALL_TESTS := ./cmd/hetero-train/program ./engine/collective/gloo ./engine/train ./cuda ./balancer/simulate ./examples \
	./engine/device/... ./engine/collective/... ./profiler/mlflow ./...
ifeq ($(SANITIZE),address)
# The sanitizer's run-time library must be the first library that every test binary loads. The C++ library must also be
# loaded at the start. If libhetero_*.so loads it later, the sanitizer does not find the C++ library's function throw.
ASAN_PRELOAD := $(shell $(CXX) -print-file-name=libasan.so):$(shell $(CXX) -print-file-name=libstdc++.so)
TEST_ENV += ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
# The reference device and the conformance suite call no C code, so Go compiles them without checks of loads and stores.
# These checks would take most of the time. The sanitizer still guards Go's heap: it reports C++ code that writes
# outside a buffer of Go.
MODULE   := github.com/hetero-train/hetero-train
GO_TEST  += -asan $(foreach plain,reference devicetest,-gcflags=$(MODULE)/engine/device/$(plain)=-asan=false) -exec 'env LD_PRELOAD=$(ASAN_PRELOAD)'
else ifeq ($(SANITIZE),undefined)
TEST_ENV += UBSAN_OPTIONS=print_stacktrace=1
endif

GO_FILES     = $$(git ls-files --cached --others --exclude-standard '*.go')
NATIVE_FILES = $$(git ls-files --cached --others --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh')

.DEFAULT_GOAL := build
.PHONY: build configure native native-test cuda-lab cuda-toolchain gpu-bundle gpu-check install uninstall offline-archive dist dist-check container deps test test-kernels test-long test-race lint bench clean distclean help

build: native ## Build ./hetero-train and its native libraries; install missing dependencies first (default)
	@$(CUDA_ENV) third_party/progress.sh go $(GO_BUILD) -v -o '$(PROGRAM)' ./cmd/hetero-train
	@echo "$(PROGRAM): $(VERSION)"

configure:
	@mkdir -p '$(BUILD)' || { echo "make: the folder $(BUILD) cannot be written; to build elsewhere: make BUILD=FOLDER" >&2; exit 2; }
ifneq ($(CROSS),)
	@command -v $(CXX) >/dev/null || { echo "make: ARCH=$(ARCH): there is no $(CXX) in PATH; run: sudo apt-get install g++-aarch64-linux-gnu" >&2; exit 2; }
else
	@$(PLACES) third_party/deps.sh
endif
	@third_party/configure.sh '$(BUILD)' $(CROSS_CMAKE) -DHETERO_FETCHED='$(FETCHED)' \
		-DHETERO_ONEDNN='$(HETERO_ONEDNN)' -DHETERO_ONEDNN_DIR='$(HETERO_ONEDNN_DIR)' \
		-DHETERO_CUDA='$(CUDA)' -DHETERO_CUDA_ARCHS='$(CUDA_ARCHS)' -DHETERO_SANITIZE='$(SANITIZE)' -DHETERO_WERROR='$(WERROR)' -DHETERO_OLD_GLIBC='$(OLD_GLIBC)'

native: configure ## Build only the native libraries, in build/lib
	@third_party/progress.sh cmake '$(BUILD)/build.log' env -u MFLAGS MAKEFLAGS=--no-print-directory cmake --build '$(BUILD)' --parallel $(CORES)
	@grep -i 'warning:' '$(BUILD)/build.log' || true
	@cat '$(BUILD)/parts.txt'
ifneq ($(SANITIZE),off)
	@echo "sanitizer: run the tests with: make test SANITIZE=$(SANITIZE)"
endif
ifeq ($(SANITIZE),address)
	@echo "sanitizer: or the program with: LD_PRELOAD=$(ASAN_PRELOAD) ASAN_OPTIONS=detect_leaks=0 HETERO_LIB_DIR=$(LIBS) ./hetero-train ..."
endif

native-test: configure # libraries for tests: GPU kernels, kernel lab and NCCL communicator, compiled for the host, and a fake NCCL
	@third_party/progress.sh cmake '$(BUILD)/build-test.log' env -u MFLAGS MAKEFLAGS=--no-print-directory \
		cmake --build '$(BUILD)' --target hetero_cuda_shim cuda-lab-host hetero_nccl_shim --parallel $(CORES)

cuda-lab: ## Build the CUDA kernel lab, build/cuda-lab: checks and times variants of kernels on a GPU
	@[ '$(SANITIZE)' = off ] || { echo "cuda-lab: got SANITIZE=$(SANITIZE), want none: there is build/$(SANITIZE)/cuda-lab-host, from make native-test" >&2; exit 2; }
	@$(MAKE) --no-print-directory configure CUDA=on
	@third_party/progress.sh cmake '$(BUILD)/build-lab.log' env -u MFLAGS MAKEFLAGS=--no-print-directory cmake --build '$(BUILD)' --target cuda-lab --parallel $(CORES)
	@echo "cuda-lab: $(BUILD)/cuda-lab --help"

cuda-toolchain: ## Install a CUDA toolkit in third_party/.cuda (1.2 GB, no root), where make finds it
	@$(PLACES) python3 third_party/cuda.py

deps: ## Install what the build lacks: as root system packages, otherwise Go, CMake and oneDNN without root
	@$(PLACES) third_party/deps.sh --force && echo "deps: everything the build needs is here"

test: build native-test ## Build, then run every test; tests fail if the CPU library is missing
	@$(CUDA_ENV) set -x; $(TEST_ENV) $(GO_TEST) $(ALL_TESTS)

test-kernels: native-test # tests only the GPU kernels, compiled for the host, without f16
	@set -x; $(TEST_ENV) $(GO_TEST) -short ./cuda

test-long: build native-test ## Run the long tests, which take hours; PARTS="large fuzz" runs some (CONTRIBUTING.md)
	@$(CUDA_ENV) $(TEST_ENV) .ci/long $(PARTS)

test-race: build native-test ## Run every test under Go's race detector
	@$(CUDA_ENV) set -x; $(TEST_ENV) $(GO_TEST) -race $(ALL_TESTS)

lint: ## gofmt, columns, go vet, go.mod, symbol check; golangci-lint and clang-format if installed
	@unformatted=$$(gofmt -l $(GO_FILES)); [ -z "$$unformatted" ] || { echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; }
	@.ci/columns.py
	@$(CUDA_ENV) set -x; go vet ./... && for module in examples/*/go.mod; do (cd "$${module%go.mod}" && GOWORK=off go vet -mod=readonly .) || exit 1; done
	@mkdir -p '$(BUILD)'; diff=$$(go mod tidy -diff 2>'$(BUILD)/tidy.log') || [ -n "$$diff" ] || \
		echo "lint: go mod tidy -diff could not be checked (offline?), skipped: $$(tail -n 1 '$(BUILD)/tidy.log')"; \
		[ -z "$$diff" ] || { echo "go.mod or go.sum is not tidy; go mod tidy would change:"; echo "$$diff"; exit 1; }
	@third_party/isa_check.sh '$(BUILD)'
	@if command -v golangci-lint >/dev/null; then echo golangci-lint run; golangci-lint run; \
		else echo "lint: golangci-lint is not installed, skipped"; fi
	@files="$(NATIVE_FILES)"; if [ -z "$$files" ]; then :; \
		elif command -v clang-format >/dev/null; then echo clang-format --dry-run; clang-format --dry-run -Werror $$files; \
		else echo "lint: clang-format is not installed, skipped"; fi

# The bundle is for a GPU machine without Go and without a network. It contains the program, libraries, scripts, and the
# test that compares training with PyTorch runs.
BUNDLE := $(BUILD)/gpu-bundle/hetero-train

gpu-bundle: ## Pack build/hetero-train-gpu.tar.gz: unpack it on a GPU machine, run scripts/gpu_check.sh
	@$(MAKE) --no-print-directory build CUDA=on
	@rm -rf '$(BUNDLE)' && mkdir -p '$(BUNDLE)/build' '$(BUNDLE)/tests/engine/train' '$(BUNDLE)/tests/engine/models'
	@cp '$(PROGRAM)' LICENSE '$(BUNDLE)/' && cp -r '$(BUILD)/lib' '$(BUNDLE)/build/' && \
		cd '$(BUNDLE)/build/lib' && rm -rf *_shim.so *_fake.so* fake_driver
	@$(PLACES) third_party/notices.sh '$(BUNDLE)/licences' '$(BUILD)' --go
	@cp -r scripts configs '$(BUNDLE)/' && cp -r engine/models/testdata '$(BUNDLE)/tests/engine/models/'
	@go test -c -ldflags '-s -w $(LAZY)' -o '$(BUNDLE)/tests/train.test' ./engine/train
	@go test -c -ldflags '-s -w $(LAZY)' -o '$(BUNDLE)/tests/models.test' ./engine/models
	@cd '$(BUNDLE)/build/lib' && strip --strip-unneeded *.so*
	@tar -C '$(BUILD)/gpu-bundle' -czf '$(BUILD)/hetero-train-gpu.tar.gz' hetero-train
	@echo "gpu-bundle: $(BUILD)/hetero-train-gpu.tar.gz, $$(($$(stat -c %s '$(BUILD)/hetero-train-gpu.tar.gz') >> 20)) MiB"

gpu-check: gpu-bundle ## Test and measure the GPU of this machine, in less than ten minutes
	@'$(BUNDLE)/scripts/gpu_check.sh' --output '$(BUILT)/gpu_check'

bench: build ## Measure this machine's peak, every op against it, and ResNet-50 training steps
	'$(PROGRAM)' bench peak
	'$(PROGRAM)' bench ops
	'$(PROGRAM)' bench train --model resnet50 --image-size 32 --batch-size 128 --steps 20
	'$(PROGRAM)' bench train --model resnet50 --image-size 224 --batch-size 32 --steps 10

PREFIX  ?= /usr/local
DESTDIR ?=

# `make install` runs the program to generate the shell completions. If this machine cannot run the program, it builds
# another one for this machine, without cgo.
RUNS := $(if $(CROSS),$(BUILT)/completions/hetero-train,$(PROGRAM))

install: ## Copy what make built to PREFIX (/usr/local), below DESTDIR if it is set
	@$(if $(CROSS),env -u GOARCH CGO_ENABLED=0 $(GO_BUILD) -o '$(RUNS)' ./cmd/hetero-train)
	@$(PLACES) third_party/install.sh install '$(DESTDIR)' '$(PREFIX)' '$(PROGRAM)' '$(BUILD)' '$(RUNS)'

uninstall: ## Remove the files of make install, and the folders that it made
	@third_party/install.sh uninstall '$(DESTDIR)' '$(PREFIX)'

offline-archive: ## Pack sources and all that make downloads, for a build without a network
	@$(PLACES) third_party/offline.sh '$(BUILD)' '$(VERSION)'

dist: ## Pack a release and a Python wheel in dist/, for any Linux with glibc 2.28 or newer, as root; ARCH=arm64 for arm64 (scripts/dist.sh)
	@$(PLACES) third_party/deps.sh
	@ARCH='$(ARCH)' CUDA='$(CUDA)' CUDA_ARCHS='$(CUDA_ARCHS)' scripts/dist.sh $(VERSION)

dist-check: dist ## Run the release in roots of Debian 11 and 13, and install the wheel, as root; for arm64 run it under QEMU
ifneq ($(CROSS),)
	@scripts/dist_check.sh dist/hetero-train-$(VERSION)-linux-aarch64.tar.gz
else
	@scripts/dist_check.sh dist/hetero-train-$(VERSION)-linux-x86_64.tar.gz
	@scripts/dist_check.sh --wheel dist/hetero_train-*_x86_64.whl
endif

RELEASE := dist/hetero-train-$(VERSION)-linux-x86_64.tar.gz

# An image name with .dirty would not identify the changes. Releases for GPUs and for CPUs have the same name.
container: ## Build a container image in build/container, as root, from a release of make dist; CUDA=on for GPUs (docs/containers.md)
	@case '$(VERSION)' in *.dirty | *+unknown) false ;; esac && [ -e '$(RELEASE)' ] && \
		[ "$$(tar -tf '$(RELEASE)' | grep -c '/libhetero_cuda\.so$$')" = $(if $(filter on,$(CUDA)),1,0) ] || \
		$(MAKE) --no-print-directory dist
	@deploy/container/build.sh $(if $(filter on,$(CUDA)),--cuda) --release '$(RELEASE)'

# `make clean` deletes only files of the build, because BUILD may name a folder of the user that contains other files.
clean: ## Remove built files; keep downloads
ifeq ($(PROGRAM),./hetero-train)
	rm -rf build dist hetero-train
else
	cd '$(BUILD)' && rm -rf hetero-train lib cuda gpu-bundle address undefined CMakeFiles CMakeCache.txt Makefile cmake_install.cmake \
		compile_commands.json parts.txt cuda.env *.log .configured .deps-failed hetero-train-*.tar.gz
endif

distclean: clean ## Remove downloads too
	cd '$(FETCHED)' && { [ ! -e .go ] || chmod -R u+w .go; } && rm -rf onednn .cuda .cuda-arm64 .download .tools .arm64 .go

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
