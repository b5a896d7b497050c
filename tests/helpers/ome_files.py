"""Multi-file OME-TIFF, as Micro-Manager writes it."""

from __future__ import annotations

from uuid import uuid4

import tifffile

_TEXT = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{uuid}">'
    '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="{x}" '
    'SizeY="{y}" SizeZ="1" SizeC="1" SizeT="{t}" BigEndian="false">'
    '<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{planes}</Pixels></Image></OME>'
)


def write_ome_files(folder, movie, count):
    """Write a movie to several files, each with the metadata of all frames."""
    each = len(movie) // count
    names = [f"f{number}.ome.tif" for number in range(count)]
    uuids = [f"urn:uuid:{uuid4()}" for _ in names]
    planes = "".join(
        f'<TiffData FirstT="{t}" FirstZ="0" FirstC="0" IFD="{t % each}" PlaneCount="1">'
        f'<UUID FileName="{names[t // each]}">{uuids[t // each]}</UUID></TiffData>'
        for t in range(len(movie))
    )
    frames, rows, columns = movie.shape
    for number, (name, uuid) in enumerate(zip(names, uuids, strict=True)):
        text = _TEXT.format(uuid=uuid, t=frames, y=rows, x=columns, planes=planes).encode()
        with tifffile.TiffWriter(folder / name) as file:
            for place, frame in enumerate(movie[number * each : (number + 1) * each]):
                file.write(
                    frame,
                    description=None if place else text,
                    metadata=None,
                    contiguous=False,
                )
    return [folder / name for name in names]
