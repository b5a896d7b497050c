"""Fake GPUs: as much of CuPy as cut-outs of the host need, on the host.

Whatever is begun on a stream waits until somebody waits for it, as on a GPU that is slow: memory
that is used again too early, or read before it is there, gives wrong results. The kernels are the
GPU's own, see on_host.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import weakref
from types import ModuleType, SimpleNamespace

import numpy as np
import on_host

from napari_spotfit.engine.cpu import layouts
from napari_spotfit.engine.cuda import devices, fit, transfer
from napari_spotfit.engine.cuda.fit_kernel import FitKernel, kernel_text, threads_for

#: Lock for shared state: fibers of kernels, and free memory.
_one_at_a_time = threading.RLock()


class OutOfMemoryError(Exception):
    """As CuPy's."""


class CUDARuntimeError(Exception):
    """As CuPy's."""


class CUDADriverError(Exception):
    """As CuPy's."""

    def __init__(self, code):
        super().__init__(f"CUDA_ERROR {code}")


class Gpus:
    """Some GPUs, each with a size of memory in bytes.

    Parameters
    ----------
    count : int
        How many.
    memory : int
        Bytes that each has.
    """

    def __init__(self, count=1, memory=1 << 30):
        self.free = [memory] * count
        #: Number of launches of each.
        self.launches = [0] * count
        #: Peak memory of each in bytes.
        self.most = [0] * count
        self._memory, self._current = memory, threading.local()
        self._fails, self._calls = {}, {}
        self._at_work = [threading.Event() for _ in range(count)]
        self._streams, self._events = {}, {}
        self.kernels, self.codes, self.null_streams = {}, {}, {}
        #: Page-locked memory, by its first byte.
        self.locked = {}

    def fail(self, device, call, first=0, error=None, *, for_good=True):
        """Make calls of a kind fail on a GPU from one on; then it is lost, or continues."""
        self._fails[device] = call, first, error or CUDARuntimeError("719: unspecified"), for_good

    def called(self, call, device=None):
        """Count a call on a GPU, and raise its error, if any."""
        device = self.device if device is None else device
        count = self._calls.setdefault((device, call), itertools.count())
        kind, first, error, for_good = self._fails.get(device, ("", 0, None, False))
        if kind == "all" or (kind == call and next(count) >= first):
            self.stand_aside(device)
            if for_good:
                self._fails[device] = "all", 0, error, True
            else:
                del self._fails[device]
            raise error

    def stand_aside(self, device):
        """Do not let threads wait for a GPU that has failed."""
        self._at_work[device].set()

    @property
    def device(self):
        return getattr(self._current, "device", 0)

    def use(self, device):
        self._current.device = device

    # CUDA driver functions that the library calls.
    def send(self, there, here, size, stream):
        return self._later("send", stream, lambda: ctypes.memmove(there, here, size))

    def receive(self, here, there, size, stream):
        return self._later("receive", stream, lambda: ctypes.memmove(here, there, size))

    def launch(self, kernel, grid, y, z, block, *rest):
        _, _, _, stream, arguments, _ = rest
        device = self._streams[stream].device
        self.launches[device] += 1
        run = self.kernels[kernel]
        failed = self._later("launch", stream, lambda: run((grid,), (block,), arguments))
        self._wait_for_others(device)
        return failed

    def _wait_for_others(self, device):
        """Wait until all threads feed their GPUs, so that no thread does all the work."""
        self._at_work[device].set()
        if threading.current_thread() is not threading.main_thread():
            assert all(begun.wait(60) for begun in self._at_work)

    def _later(self, call, stream, work):
        stream = self._streams[stream]
        try:
            self.called(call, stream.device)
        except (CUDARuntimeError, OutOfMemoryError):
            return 719
        stream.later(work)
        return 0

    def synchronize(self, stream):
        try:
            self._streams[stream].synchronize()
        except (CUDARuntimeError, OutOfMemoryError):
            return 719
        return 0

    def record(self, event, stream):
        self._events[event].record(self._streams[stream])
        return 0

    def wait(self, event):
        self._events[event].synchronize()
        return 0


def install(monkeypatch, gpus):
    """Replace CuPy by these GPUs in the package."""
    cupy = _cupy(gpus)
    for name in ("", ".cuda", *(f".cuda.{part}" for part in vars(cupy.cuda.parts))):
        module = cupy
        for part in name.split(".")[1:]:
            module = getattr(module, part)
        monkeypatch.setitem(sys.modules, f"cupy{name}", module)
    pointer, size = ctypes.c_void_p, ctypes.c_ulonglong
    number = ctypes.c_uint
    functions = [
        ctypes.CFUNCTYPE(ctypes.c_int, *given)(function)
        for function, given in (
            (gpus.send, (size, pointer, size, pointer)),
            (gpus.receive, (pointer, size, size, pointer)),
            (gpus.launch, (pointer, *7 * (number,), pointer, pointer, pointer)),
            (gpus.record, (pointer, pointer)),
            (gpus.wait, (pointer,)),
            (gpus.synchronize, (pointer,)),
        )
    ]
    calls = layouts.DeviceCalls(*(ctypes.cast(function, pointer) for function in functions))
    gpus.functions = functions  # to outlast the calls
    monkeypatch.setattr(transfer, "device_calls", lambda: calls)
    for name in ("_idle", "_idle_streams", "_results"):
        monkeypatch.setattr(transfer, name, {})
    monkeypatch.setattr(transfer, "_locked_sizes", [])
    monkeypatch.setattr(fit, "fit_kernel", lambda code, _: _kernel(gpus, code))
    monkeypatch.setattr(fit, "multiprocessors", lambda _: 1)
    fit._on_device.cache_clear()
    devices._free_memory.cache_clear()
    return cupy


class _Kernel:
    """A kernel like CuPy's."""

    def __init__(self, gpus, code):
        self.threads, self._gpus = threads_for(code), gpus
        self.ptr, self.kernel = id(self), self
        self._text = kernel_text(code, self.threads)
        gpus.kernels[self.ptr] = on_host.launcher(self._text, "fit")

    def __call__(self, grid, block, arguments):
        stream = self._gpus.stream()
        self._gpus.called("launch", stream.device)
        self._gpus.launches[stream.device] += 1
        given = self._text, "fit", grid, block, [np.array(one) for one in arguments]
        stream.later(lambda: on_host.launch(*given))


def _kernel(gpus, code):
    if code not in gpus.codes:
        gpus.codes[code] = _Kernel(gpus, code)
    return FitKernel(gpus.codes[code], gpus.codes[code].threads)


class _Stream:
    """A queue of asynchronous calls."""

    def __init__(self, gpus):
        self.gpus, self.device, self.ptr = gpus, gpus.device, id(self)
        self._begun, self._done = [], 0
        gpus._streams[self.ptr] = self

    def __enter__(self):
        current = self.gpus._current
        current.streams = [*getattr(current, "streams", []), self]
        return self

    def __exit__(self, *_):
        self.gpus._current.streams.pop()

    def later(self, work):
        self._begun.append(work)

    def until(self, end):
        with _one_at_a_time:
            while self._done < end:
                self._begun[self._done]()
                self._begun[self._done] = None
                self._done += 1

    def position(self):
        return len(self._begun)

    def wait_event(self, event):
        self.later(event.synchronize)

    def synchronize(self):
        self.gpus.called("synchronize", self.device)
        self.until(len(self._begun))


class _Event:
    """A position in a stream."""

    def __init__(self, gpus):
        self.ptr, self._place = id(self), None
        gpus._events[self.ptr] = self

    def record(self, stream):
        self._place = stream, stream.position()

    def synchronize(self):
        if self._place:
            stream, end = self._place
            stream.until(end)


class _Pointer:
    """An address of a GPU's memory."""

    def __init__(self, ptr):
        self.ptr = ptr

    def __add__(self, offset):
        return _Pointer(self.ptr + offset)

    def copy_from_host_async(self, here, size, stream):
        stream.gpus.called("send", stream.device)
        stream.later(lambda: ctypes.memmove(self.ptr, here, size))


class _Array(np.ndarray):
    """An array of a GPU."""

    @property
    def data(self):
        return _Pointer(self.ctypes.data)


def _cupy(gpus):
    """Return a module that replaces CuPy."""

    class Device:
        def __init__(self, device=None):
            self.id = gpus.device if device is None else device

        def __enter__(self):
            self._before = gpus.device
            gpus.use(self.id)
            return self

        def __exit__(self, *_):
            gpus.use(self._before)

    def empty(shape, dtype):
        size, device = int(np.prod(shape)) * np.dtype(dtype).itemsize, gpus.device
        gpus.called("empty")
        with _one_at_a_time:
            if gpus.free[device] < size:
                gpus.stand_aside(device)
                raise OutOfMemoryError
            gpus.free[device] -= size
            gpus.most[device] = max(gpus.most[device], gpus._memory - gpus.free[device])
        memory = np.full(max(size, 1), 0xA5, np.uint8)
        array = memory[:size].view(_Array).view(dtype).reshape(shape)
        weakref.finalize(memory, _give_back, gpus.free, device, size)
        return array

    def alloc_pinned_memory(size):
        memory = bytearray(b"\xa5" * size)
        place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        gpus.locked[place] = size
        return memory

    def stream():
        entered = getattr(gpus._current, "streams", None)
        return entered[-1] if entered else gpus.null_streams.setdefault(gpus.device, _Stream(gpus))

    gpus.stream = stream

    def attributes(place):
        locked = any(0 <= place - first < size for first, size in gpus.locked.items())
        return SimpleNamespace(type=int(locked))

    def register(place, size, flags):
        gpus.called("register")
        gpus.locked[place] = size

    runtime = SimpleNamespace(
        getDevice=lambda: gpus.device, setDevice=gpus.use, pointerGetAttributes=attributes,
        CUDARuntimeError=CUDARuntimeError,
        memGetInfo=lambda: (gpus.free[gpus.device], 0),
        hostRegister=register, hostUnregister=gpus.locked.pop,
    )  # fmt: skip
    parts = SimpleNamespace(
        runtime=runtime,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        compiler=SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
        nvrtc=SimpleNamespace(NVRTCError=type("NVRTCError", (Exception,), {})),
    )
    cuda = ModuleType("cupy.cuda")
    vars(cuda).update(
        vars(parts), parts=parts, Device=Device, alloc_pinned_memory=alloc_pinned_memory,
        Stream=lambda non_blocking: _Stream(gpus), Event=lambda **_: _Event(gpus),
        get_current_stream=stream,
    )  # fmt: skip
    cupy = ModuleType("cupy")
    pool = SimpleNamespace(free_all_blocks=lambda: None, free_bytes=lambda: 0)
    vars(cupy).update(cuda=cuda, empty=empty, get_default_memory_pool=lambda: pool)
    return cupy


def _give_back(free, device, size):
    with _one_at_a_time:
        free[device] += size
