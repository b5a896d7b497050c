"""Spots for files of other programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_spotfit import Settings, SpotFits, StopCondition

#: Pixels that are higher than wide, so that y is not taken for x.
SIZE = (120.0, 100.0)
#: Files in the other programs' own terms, and their first spots; pixels have 120 × 100 nm.
WRITTEN: dict[str, tuple[str, dict[str, float]]] = {
    "thunderstorm": (
        '"id","frame","x [nm]","y [nm]","sigma [nm]","intensity [photon]","offset [photon]",'
        '"bkgstd [photon]","uncertainty [nm]"\n1.0,1.0,50.0,180.0,130.0,1000.0,10.0,3.2,12.5\n',
        {"frame": 0, "y": 1.0, "x": 0.0, "photons": 1000, "background": 10, "x_stderr": 0.125},
    ),
    "smap": (
        "ID,frame,xnm,ynm,znm,phot,bg,locprecnm \n1,2,100,360,0,800,9,12\n",
        {"frame": 1, "y": 2.0, "x": 0.0, "photons": 800, "background": 9, "y_stderr": 0.1},
    ),
    "trackmate": (
        "LABEL,ID,TRACK_ID,QUALITY,POSITION_X,POSITION_Y,POSITION_Z,POSITION_T,FRAME,RADIUS,"
        "VISIBILITY\nLabel,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,Radius,Visibility\n"
        "Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,R,Visibility\n"
        ",,,(quality),(micron),(micron),(micron),(sec),,(micron),\n"
        "ID101,101,0,12.5,1.05,2.4,0.0,0.0,0,0.25,1\nID102,102,,9,3.0,0.5,0.0,0.1,1,0.25,1\n",
        {"frame": 0, "y": 20.0, "x": 10.5, "score": 12.5, "track": 0},
    ),
    "napari": (
        "index,axis-0,axis-1,axis-2,sigma,stop_condition\n0.0,3.0,10.25,20.5,1.31,MIN_STEP\n",
        {"frame": 3, "y": 10.25, "x": 20.5, "stop_condition": StopCondition.MIN_STEP},
    ),
    "bigfish": ("3;120;87\n4;121;300\n", {"frame": 3, "y": 120, "x": 87}),
    "rsfish": (
        "x,y,z,t,c,intensity\n12.5,7.75,3.25,1,2,812.5\n",
        {"frame": 0, "y": 7.75, "x": 12.5, "z_px": 3.25, "channel": 2, "amplitude": 812.5},
    ),
    "plain": ("y,x,brightness,cell\n1.5,2.5,7,a\n", {"y": 1.5, "x": 2.5, "brightness": 7}),
}  # fmt: skip


def localised(count: int = 40, seed: int = 0, **more: Any) -> SpotFits:
    """Return photons at known places."""
    rng = np.random.default_rng(seed)
    columns = {
        "frame": np.sort(rng.integers(0, 9, count)),
        "y": rng.uniform(0, 60, count),
        "x": rng.uniform(0, 80, count),
        "sigma": rng.uniform(1, 2, count).astype(np.float32),
        "amplitude": rng.uniform(50, 500, count).astype(np.float32),
        "background": rng.uniform(1, 20, count).astype(np.float32),
        "photons": rng.uniform(100, 4000, count).astype(np.float32),
        "iterations": rng.integers(1, 20, count).astype(np.uint16),
        "stop_condition": rng.integers(0, 5, count).astype(np.uint8),
        "x_stderr": rng.uniform(0.01, 0.2, count).astype(np.float32),
        "y_stderr": rng.uniform(0.01, 0.2, count).astype(np.float32),
    }
    return SpotFits(columns | more, ("frame",), Settings(gain=1.0))
