"""Open and read the page "Inspect" of "Results"."""

import numpy as np

import napari_spotfit
from napari_spotfit.widgets.results import Results


def docked(viewer, area="bottom"):
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name="Results", area=area)
    return results.inspect


def results_of(inspector):
    """Return the widget whose page it is."""
    while not isinstance(inspector, Results):
        inspector = inspector.parentWidget()
    return inspector


def go_to(inspector, layer, row):
    """Show a spot of a layer, here and in the viewer."""
    results_of(inspector).go_to(layer, row, "Inspect")


def add_spots(viewer, movie, of=None, **options):
    """Add an image and its fitted spots."""
    image = viewer.add_image(movie, name="movie", contrast_limits=(90, 600), **options)
    fits = napari_spotfit.localize(np.asarray(movie) if of is None else of, offset=90)
    return image, viewer.add_layer(napari_spotfit.to_points_layer(fits, image))


def shows(inspector, layer, row):
    """Whether the page shows numbers and pictures of a spot."""
    values = layer.features.iloc[row]
    number = inspector.panel.numbers.texts().get("y", "nan")
    y = float(number.partition(" ±")[0])
    drawn = inspector.panel.pixels.currentIndex() == 0 and inspector.panel.pages.currentIndex() == 0
    corner = inspector.panel.pictures.data.image.mapRectToParent(
        inspector.panel.pictures.data.image.boundingRect()
    )
    return (
        f"row {row} of" in inspector.panel.title.text()
        and abs(y - values["y"]) <= values["y_stderr"] + 1e-3
        and drawn
        and abs(corner.top() - (values["roi_y"] - 0.5)) < 1e-6
        and abs(corner.left() - (values["roi_x"] - 0.5)) < 1e-6
    )


def message(inspector):
    panel = inspector.panel
    return panel.message.text() if panel.pages.currentWidget() is panel.message else ""


def note(inspector):
    panel = inspector.panel
    return panel.note.text() if panel.pixels.currentWidget() is panel.note else ""
