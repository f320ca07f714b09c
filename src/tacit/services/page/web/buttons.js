// Buttons that do nothing for a while: unlike disabled ones they keep the keyboard's place.

/** @param {Element} button @param {boolean} [isHeld] */
export function hold(button, isHeld = true) {
  if (isHeld) button.setAttribute("aria-disabled", "true");
  else button.removeAttribute("aria-disabled");
}

/** Act on each press, but for those while the button is held. @param {Element} button @param {() => unknown} act */
export function onPress(button, act) {
  button.addEventListener("click", () => {
    if (!isHeld(button)) act();
  });
}

/** @param {Element} button */
export function isHeld(button) {
  return button.getAttribute("aria-disabled") === "true";
}
