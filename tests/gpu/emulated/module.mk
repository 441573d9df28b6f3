# SPDX-License-Identifier: Apache-2.0
# Builds plait_cuda.so and plait_nccl.so for a machine without a GPU:
# kernels/cuda and runtime/comm/nccl on top of this folder's emulated CUDA and
# NCCL. A separate makefile, so that the flags and sanitizers of the build
# around it do not reach the kernels.
#
#   make -f module.mk top_srcdir=DIR CC=.. CXX=.. [cuda=DIR] [out=DIR]
#
# cuda: the tree to take kernels/cuda/ and runtime/comm/nccl/ from (mutants.py
# has copies); out: where the module goes.
emulated = $(top_srcdir)/tests/gpu/emulated
cuda = $(top_srcdir)
out = .

includes = -I$(out)/source -I$(emulated) -I$(emulated)/include -I$(cuda) \
	-I$(top_srcdir) -I$(top_srcdir)/topology/api
# From AC_INIT: the name, the version.
version := $(shell sed -n 's/^AC_INIT.\[[^]]*\], *\[\([^]]*\)\].*/\1/p' \
	$(top_srcdir)/configure.ac)
cflags = -std=gnu11 -g -fPIC -fvisibility=hidden -Wall -Wextra -MMD -MP \
	-DPACKAGE_VERSION='"$(version)"'
# The sanitizer's library is not linked: accesses.c defines its functions.
kernel_flags = -std=c++17 -O1 -g1 -fPIC -fvisibility=hidden -fsanitize=thread \
	-fno-strict-aliasing -fno-exceptions \
	--param tsan-instrument-func-entry-exit=0 -MMD -MP -Wall -Wextra \
	-Wno-unused-function -Wno-unused-parameter -Wno-unused-variable \
	-include $(emulated)/emulated.h

machine = $(patsubst $(emulated)/%.c,$(out)/machine/%.o, \
	$(filter-out $(emulated)/test_%,$(wildcard $(emulated)/*.c)))
host = $(patsubst $(cuda)/kernels/cuda/%.c,$(out)/host/%.o, \
	$(wildcard $(cuda)/kernels/cuda/*.c))
kernels = $(patsubst $(cuda)/kernels/cuda/%.cu,$(out)/kernels/%.o, \
	$(wildcard $(cuda)/kernels/cuda/*.cu))
headers = $(patsubst $(cuda)/%,$(out)/source/%, \
	$(wildcard $(cuda)/kernels/cuda/*.cuh))

nccl = $(patsubst %,$(out)/comm/%.o,nccl nccl_log nccl_memory nccl_transfer \
	nccl_wait nccl_world)
beside = $(patsubst %,$(out)/beside/%.o,runtime/comm/backend \
	runtime/comm/nccl/policy kernels/kernels topology/base/error \
	topology/base/text \
	topology/base/thread)

all: $(out)/plait_cuda.so $(out)/plait_nccl.so

# $ORIGIN: it finds the emulated NCCL in the module beside it.
$(out)/plait_nccl.so: $(nccl) $(beside) $(out)/plait_cuda.so
	$(CC) -shared -o $@ $(nccl) $(beside) -L$(out) -l:plait_cuda.so \
	    -Wl,--no-undefined -Wl,-rpath,'$$ORIGIN' -lpthread

$(out)/comm/%.o: $(cuda)/runtime/comm/nccl/%.c $(emulated)/module.mk
	@mkdir -p $(@D)
	$(CC) $(cflags) -O1 -I$(emulated)/include/plain $(includes) -c -o $@ $<

$(out)/beside/%.o: $(top_srcdir)/%.c $(emulated)/module.mk
	@mkdir -p $(@D)
	$(CC) $(cflags) -O1 -I$(emulated)/include/plain $(includes) -c -o $@ $<

$(out)/plait_cuda.so: $(machine) $(host) $(kernels)
	$(CXX) -shared -Wl,-soname,plait_cuda.so -o $@ $^ -lm -ldl -lpthread -Wl,--no-undefined

$(out)/machine/%.o: $(emulated)/%.c $(emulated)/module.mk
	@mkdir -p $(@D)
	$(CC) $(cflags) -O3 $(includes) -c -o $@ $<

$(out)/host/%.o: $(cuda)/kernels/cuda/%.c $(emulated)/module.mk
	@mkdir -p $(@D)
	$(CC) $(cflags) -O1 -I$(emulated)/include/plain $(includes) -c -o $@ $<

$(out)/kernels/%.o: $(out)/source/kernels/cuda/%.cc \
		$(emulated)/emulated.h $(emulated)/emulated_calls.h \
		$(emulated)/module.mk | $(headers)
	@mkdir -p $(@D)
	$(CXX) $(kernel_flags) $(includes) -c -o $@ $<

$(out)/source/kernels/cuda/%.cc: $(cuda)/kernels/cuda/%.cu \
		$(emulated)/rewrite.py
	@mkdir -p $(@D)
	python3 $(emulated)/rewrite.py $< $@

$(out)/source/kernels/cuda/%.cuh: $(cuda)/kernels/cuda/%.cuh \
		$(emulated)/rewrite.py
	@mkdir -p $(@D)
	python3 $(emulated)/rewrite.py $< $@

.SECONDARY:
-include $(wildcard $(out)/*/*.d $(out)/beside/*/*.d $(out)/beside/*/*/*.d)
