"""The GPU's kernel of joint fits on the host, against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest
from crowds_on_host import CrowdsOnHost
from model_crowds import random_stack

from napari_spotfit.engine.cpu.backend import Cpu
